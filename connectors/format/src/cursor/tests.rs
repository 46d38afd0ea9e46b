//! The grammar against `serde_json`, and the limits.

use proptest::prelude::*;

use super::*;

fn accepts(text: &str) -> bool {
    let mut c = Cursor::new(text);
    c.skip().is_ok() && c.end().is_ok()
}

#[test]
fn the_grammar_is_that_of_json() {
    for good in [
        "0",
        "-0",
        "1.5e+10",
        "[]",
        "{}",
        " [1 , 2] ",
        r#"{"a":{"b":[null,true,false]}}"#,
        r#""\u0041\n\/""#,
        "\"\u{7f}é\"",
    ] {
        assert!(accepts(good), "{good}");
    }
    for bad in [
        "",
        " ",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "+1",
        "[1,]",
        "[,1]",
        "{,}",
        r#"{"a":1,}"#,
        r#"{"a"}"#,
        r#"{a:1}"#,
        "[1 2]",
        "nul",
        "truex",
        "\"\n\"",
        r#""\x""#,
        r#""\u12g4""#,
        "\"",
        "1 2",
        "{}{}",
        "\u{feff}{}",
        "'a'",
        "NaN",
        "[1}",
        "{\"a\":1]",
        "\"\u{0}\"",
    ] {
        assert!(!accepts(bad), "{bad}");
    }
}

#[test]
fn nesting_and_members_are_limited() {
    assert!(accepts(&format!("{}{}", "[".repeat(64), "]".repeat(64))));
    for text in ["[".repeat(10_000), "{\"a\":".repeat(10_000), format!("{}{}", "[".repeat(65), "]".repeat(65))] {
        assert_eq!(Cursor::new(&text).skip().unwrap_err().reason(), BadReason::LimitExceeded);
    }
    let members = |n: usize| format!("{{{}}}", (0..n).map(|i| format!("\"{i}\":0")).collect::<Vec<_>>().join(","));
    assert!(accepts(&members(10_000)));
    assert_eq!(Cursor::new(&members(10_001)).skip().unwrap_err().reason(), BadReason::LimitExceeded);
}

#[test]
fn strings_are_unescaped_and_surrogates_are_paired() {
    let get = |text: &str| {
        let mut c = Cursor::new(text);
        c.kind().unwrap();
        let mut s = String::new();
        c.string().unwrap().get(&mut s).map(str::to_owned)
    };
    assert_eq!(get(r#""a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00z""#).unwrap(), "a\"\\/\u{8}\u{c}\n\r\té😀z");
    for lone in [r#""\ud83d""#, r#""\ud83dx""#, r#""\ude00""#, r#""\ud83d\ud83d""#, r#""\ud83d\n""#] {
        assert_eq!(get(lone).unwrap_err().reason(), BadReason::InvalidUtf8, "{lone}");
    }
}

proptest! {
    #[test]
    fn it_accepts_what_serde_json_accepts(text in r#"([\[\]{},:" \\ntrue0-9.eE+-]|"[a-z\\"]*"|null|true|[0-9]{1,3}){0,12}"#) {
        let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        prop_assert_eq!(accepts(&text), theirs, "{}", text);
    }

    #[test]
    fn short_integers_are_exact_or_left_alone(text in "-?[0-9]{1,20}[.e]?[0-9]{0,2}") {
        let mut c = Cursor::new(&text);
        if let Some(v) = c.short_integer() {
            prop_assert_eq!(v.to_string().parse::<i64>().unwrap(), text.parse::<i64>().unwrap());
        } else {
            prop_assert_eq!(c.at, 0);
        }
    }

    #[test]
    fn the_end_of_plain_text_is_found(text in "\\PC{0,30}[\\x00-\\x22\\\\]\\PC{0,10}", from in 0_usize..5) {
        let bytes = text.as_bytes();
        let slow = (from.min(bytes.len())..bytes.len()).find(|i| matches!(bytes[*i], b'"' | b'\\') || bytes[*i] < 0x20);
        prop_assert_eq!(plain_until(bytes, from.min(bytes.len())), slow.unwrap_or(bytes.len()));
    }
}
