//! The group state machine: joins, rebalances, silence, static members. Method: requests by hand, time by hand.

use bytes::Bytes;
use kafka_protocol::ResponseError;

use super::{
    message::{Join, Joined, Reply, Sync},
    state::{Group, Phase},
};

const SESSION: i64 = 10_000;

fn join(id: &str, new_id: &str, instance: Option<&str>) -> Join {
    Join {
        member_id: id.to_owned(),
        instance_id: instance.map(str::to_owned),
        client_id: "c".to_owned(),
        client_host: "/h".to_owned(),
        session_ms: SESSION,
        rebalance_ms: 30_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), Bytes::from_static(b"m"))],
        two_steps: true,
        may_skip: true,
        new_id: new_id.to_owned(),
    }
}

fn sync(id: &str, generation: i32, assignments: &[(&str, &'static str)]) -> Sync {
    Sync {
        member_id: id.to_owned(),
        instance_id: None,
        generation,
        protocol_type: None,
        protocol: None,
        assignments: assignments.iter().map(|(m, a)| ((*m).to_owned(), Bytes::from_static(a.as_bytes()))).collect(),
    }
}

/// A group of one stable member `a`.
fn of_one(group: &mut Group) {
    let replies = group.join(1, join("", "a", None), 0);
    let [Reply::Join(1, Joined { error: Some(ResponseError::MemberIdRequired), member_id, .. })] = &replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!(member_id, "a");
    let replies = group.join(2, join("a", "", None), 0);
    let [Reply::Join(2, Joined { error: None, generation: 1, leader, members, .. })] = &replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!((leader.as_str(), members.len()), ("a", 1));
    assert_eq!(group.sync(3, sync("a", 1, &[("a", "x")]), 0), [Reply::Sync(3, Ok(Bytes::from_static(b"x")))]);
    assert_eq!(group.phase, Phase::Stable);
}

#[test]
fn a_second_member_makes_the_first_join_again() {
    let mut g = Group::default();
    of_one(&mut g);
    g.join(4, join("", "b", None), 0);
    assert_eq!(g.heartbeat("a", None, 1, 0), Ok(()), "an id that was only given out changes nothing");
    assert_eq!(g.join(5, join("b", "", None), 0), []);
    assert_eq!(g.heartbeat("a", None, 1, 0), Err(ResponseError::RebalanceInProgress));
    let replies = g.join(6, join("a", "", None), 0);
    assert_eq!(replies.len(), 2);
    assert_eq!((g.generation, g.phase), (2, Phase::Completing));
    assert_eq!(g.sync(7, sync("b", 2, &[]), 0), []);
    let mut replies = g.sync(8, sync("a", 2, &[("a", "1"), ("b", "2")]), 0);
    replies.sort_by_key(|r| match r {
        Reply::Join(t, _) | Reply::Sync(t, _) => *t,
    });
    let of = |t, text: &'static str| Reply::Sync(t, Ok(Bytes::from_static(text.as_bytes())));
    assert_eq!(replies, [of(7, "2"), of(8, "1")]);
    assert_eq!(g.heartbeat("b", None, 1, 0), Err(ResponseError::IllegalGeneration));
    assert_eq!(g.heartbeat("x", None, 2, 0), Err(ResponseError::UnknownMemberId));
}

#[test]
fn a_silent_member_goes_and_the_others_rebalance() {
    let mut g = Group::default();
    of_one(&mut g);
    g.join(4, join("", "b", None), 0);
    g.join(5, join("b", "", None), 0);
    g.join(6, join("a", "", None), 0);
    g.sync(7, sync("a", 2, &[]), 0);
    g.sync(8, sync("b", 2, &[]), 0);
    assert_eq!(g.heartbeat("b", None, 2, SESSION - 1), Ok(()));
    assert_eq!(g.tick(SESSION), []);
    assert_eq!((g.members.len(), g.phase), (1, Phase::Preparing));
    let replies = g.join(9, join("b", "", None), SESSION);
    assert!(matches!(&replies[..], [Reply::Join(9, Joined { error: None, generation: 3, .. })]), "{replies:?}");
    assert_eq!(g.leader.as_deref(), Some("b"));
}

#[test]
fn a_member_that_does_not_come_back_is_left_behind_at_the_deadline() {
    let mut g = Group::default();
    of_one(&mut g);
    g.join(4, join("", "b", None), 0);
    g.join(5, join("b", "", None), 0);
    for t in [5_000, 14_000, 23_000] {
        assert_eq!(g.heartbeat("a", None, 1, t), Err(ResponseError::RebalanceInProgress));
        assert_eq!(g.tick(t), []);
    }
    let replies = g.tick(30_000);
    assert!(matches!(&replies[..], [Reply::Join(5, Joined { error: None, generation: 2, .. })]), "{replies:?}");
    assert_eq!(g.members.keys().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn the_last_to_leave_empties_the_group() {
    let mut g = Group::default();
    of_one(&mut g);
    let mut out = Vec::new();
    assert_eq!(g.leave("nobody", None, 0, &mut out), Err(ResponseError::UnknownMemberId));
    assert_eq!(g.leave("a", None, 0, &mut out), Ok(()));
    assert_eq!((g.phase, g.generation, out.len()), (Phase::Empty, 2, 0));
}

#[test]
fn a_static_member_comes_back_without_a_rebalance() {
    let mut g = Group::default();
    let replies = g.join(1, join("", "a1", Some("i")), 0);
    assert!(matches!(&replies[..], [Reply::Join(1, Joined { error: None, .. })]), "no second step: {replies:?}");
    g.sync(2, sync("a1", 1, &[("a1", "x")]), 0);
    let replies = g.join(3, join("", "a2", Some("i")), 0);
    let [Reply::Join(3, joined)] = &replies[..] else { panic!("{replies:?}") };
    assert_eq!((joined.error, joined.generation, joined.skip_assignment), (None, 1, true));
    assert_eq!(g.sync(4, sync("a2", 1, &[]), 0), [Reply::Sync(4, Ok(Bytes::from_static(b"x")))]);
    assert_eq!(g.heartbeat("a1", Some("i"), 1, 0), Err(ResponseError::FencedInstanceId));
    assert_eq!(g.heartbeat("a2", Some("i"), 1, 0), Ok(()));
    let replies = g.join(5, join("a1", "", Some("i")), 0);
    assert!(matches!(&replies[..], [Reply::Join(5, Joined { error: Some(ResponseError::FencedInstanceId), .. })]));
}

#[test]
fn members_must_agree_on_a_protocol() {
    let mut g = Group::default();
    of_one(&mut g);
    let mut other = join("", "b", None);
    other.protocols = vec![("sticky".to_owned(), Bytes::new())];
    let replies = g.join(4, other, 0);
    let [Reply::Join(4, Joined { error: Some(e), .. })] = &replies[..] else { panic!("{replies:?}") };
    assert_eq!(*e, ResponseError::InconsistentGroupProtocol);
}

#[test]
fn a_leader_that_never_assigns_is_removed() {
    let mut g = Group::default();
    of_one(&mut g);
    g.join(4, join("", "b", None), 0);
    g.join(5, join("b", "", None), 0);
    g.join(6, join("a", "", None), 0);
    assert_eq!(g.sync(7, sync("b", 2, &[]), 0), []);
    for t in [9_000, 18_000, 27_000] {
        assert_eq!(g.heartbeat("a", None, 2, t), Ok(()));
        assert_eq!(g.heartbeat("b", None, 2, t), Ok(()));
        assert_eq!(g.tick(t), []);
    }
    let replies = g.tick(30_000);
    assert_eq!(replies, [Reply::Sync(7, Err(ResponseError::RebalanceInProgress))]);
    assert_eq!(g.members.keys().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn a_member_that_waits_for_its_assignment_is_not_silent() {
    let mut g = Group::default();
    of_one(&mut g);
    g.join(4, join("", "b", None), 0);
    g.join(5, join("b", "", None), 0);
    g.join(6, join("a", "", None), 0);
    assert_eq!(g.sync(7, sync("b", 2, &[]), 0), []);
    for t in [9_000, 18_000, 27_000] {
        // Only the leader, which takes its time to assign, sends heartbeats.
        assert_eq!(g.heartbeat("a", None, 2, t), Ok(()));
        assert_eq!(g.tick(t), []);
    }
    let replies = g.sync(8, sync("a", 2, &[("a", "1"), ("b", "2")]), 28_000);
    assert!(replies.contains(&Reply::Sync(7, Ok(Bytes::from_static(b"2")))), "{replies:?}");
    assert_eq!(g.tick(28_000 + SESSION - 1), []);
    assert_eq!((g.members.len(), g.generation, g.phase), (2, 2, Phase::Stable));
}

#[test]
fn an_old_client_that_leads_as_a_static_member_restarts_without_a_rebalance() {
    let mut g = Group::default();
    let old = |id: &str, new_id: &str| Join { may_skip: false, ..join(id, new_id, Some("i")) };
    g.join(1, old("", "a1"), 0);
    g.sync(2, sync("a1", 1, &[("a1", "x")]), 0);
    // What it says about its partitions may differ after a restart.
    let mut again = old("", "a2");
    again.protocols[0].1 = Bytes::from_static(b"n");
    let replies = g.join(3, again, 0);
    let [Reply::Join(3, joined)] = &replies[..] else { panic!("{replies:?}") };
    assert_eq!((joined.error, joined.generation, joined.leader.as_str()), (None, 1, "a1"), "its former self leads");
    assert_eq!((joined.member_id.as_str(), joined.skip_assignment, joined.members.len()), ("a2", false, 0));
    assert_eq!(g.sync(4, sync("a2", 1, &[]), 0), [Reply::Sync(4, Ok(Bytes::from_static(b"x")))]);
    assert_eq!((g.generation, g.phase, g.leader.as_deref()), (1, Phase::Stable, Some("a2")));
    // Another protocol does move everybody.
    let mut other = old("", "a3");
    other.protocols = vec![("sticky".to_owned(), Bytes::from_static(b"m"))];
    let replies = g.join(5, other, 0);
    let [Reply::Join(5, joined)] = &replies[..] else { panic!("{replies:?}") };
    assert_eq!((joined.generation, joined.leader.as_str()), (2, "a3"));
}
