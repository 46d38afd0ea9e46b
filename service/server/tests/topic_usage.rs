//! `millstream topic` without a broker: what is wrong is said before anything is tried, and a broker that is away is not waited for.

use crate::command_line::millstream;

fn topic(args: &[&str]) -> (i32, String, String) {
    millstream(&[&["topic"], args].concat(), "")
}

#[test]
fn wrong_arguments_are_usage_errors() {
    for args in [
        &["create"][..],
        &["create", "t", "--partitions", "0"],
        &["create", "t", "--topic-config", "retention.ms"],
        &["consume", "t", "--from", "tomorrow"],
        &["consume", "t", "--isolation", "serializable"],
        &["consume", "t", "--timeout", "0"],
        &["consume", "t", "--timeout", "5", "--follow"],
        &["produce", "t", "--key", "a", "--key-separator", "="],
        &["list", "-X", "linger.ms"],
    ] {
        let (code, out, err) = topic(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?} {err}");
    }
}

#[test]
fn a_wrong_client_property_says_which_one_is_meant() {
    let (code, _, err) = topic(&["list", "-X", "lingr.ms=1"]);
    assert_eq!((code, err.contains("did you mean linger.ms")), (1, true), "{err}");
    let (code, _, err) = topic(&["list", "--config", "/does/not/exist"]);
    assert_eq!((code, err.contains("/does/not/exist")), (1, true), "{err}");
}

#[test]
fn a_broker_that_is_away_is_an_error_that_names_the_call() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let bootstrap = format!("127.0.0.1:{port}");
    for args in [&["list"][..], &["create", "t"], &["produce", "t"], &["consume", "t"]] {
        let (code, out, err) = topic(&[args, &["-b", &bootstrap]].concat());
        assert_eq!((code, out.as_str()), (1, ""), "{args:?}");
        assert!(err.starts_with("error: ") && err.contains(&bootstrap) && err.contains("--bootstrap"), "{err}");
    }
}
