//! Files with a flipped bit, or without what a full disk refused: what is whole is still there, and nothing that was aborted shows. Method: every byte of small
//! files is damaged in turn.

use std::{fs, path::Path};

use super::{
    batch::Marker,
    tests::{NOBODY, open, open_with, put, read_all, settings},
    *,
};

fn aborted(log: &Log) -> Vec<(i64, i64)> {
    log.read(log.start(), u64::MAX >> 1, true, true).unwrap().unwrap().aborted
}

fn with_ending(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    paths.filter(|p| p.extension().is_some_and(|e| e == ending)).collect()
}

#[test]
fn an_abort_whose_index_cannot_be_written_is_known_all_the_same() {
    for closed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut log = open(dir.path());
        put(&mut log, 2, (1, 0, 0), true, 0);
        log.close().unwrap();
        // Only this file cannot be written.
        let index = log.segments[0].aborted.path().to_owned();
        fs::create_dir(&index).unwrap();
        assert_eq!(
            log.append_marker(Marker::Abort, 1, 0, 0).unwrap(),
            2,
            "there is a marker, so there is no second one"
        );
        assert_eq!((aborted(&log), log.stable(), log.next()), (vec![(1, 0)], 3, 3));
        assert!(log.close().is_err(), "no snapshot says that all is well");
        fs::remove_dir(&index).unwrap();
        if closed {
            log.close().unwrap();
            assert_eq!(fs::metadata(&index).unwrap().len(), 24);
        }
        let log = open(dir.path());
        assert_eq!((aborted(&log), log.next()), (vec![(1, 0)], 3), "closed: {closed}");
    }
}

#[test]
fn aborted_transactions_are_found_again_whatever_happens_to_their_index() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    for i in 0..40 {
        put(&mut log, 3, (1, 0, i * 3), true, 0);
        log.append_marker(if i % 2 == 0 { Marker::Abort } else { Marker::Commit }, 1, 0, 0).unwrap();
    }
    log.close().unwrap();
    assert!(log.segments.len() > 3);
    let all = |log: &Log| log.segments.iter().flat_map(|s| s.aborted.entries.clone()).collect::<Vec<_>>();
    let expected = all(&log);
    assert_eq!(expected.len(), 20);
    drop(log);
    for path in with_ending(dir.path(), "txnindex") {
        let bytes = fs::read(&path).unwrap();
        for damage in 0..bytes.len() + 2 {
            match damage.checked_sub(bytes.len()) {
                None => {
                    let mut bad = bytes.clone();
                    bad[damage] ^= 1 << (damage % 8);
                    fs::write(&path, bad).unwrap();
                }
                Some(0) => fs::write(&path, &bytes[..bytes.len() / 2]).unwrap(),
                Some(_) => fs::remove_file(&path).unwrap(),
            }
            let mut log = open(dir.path());
            assert_eq!(all(&log), expected, "{} {damage}", path.display());
            log.close().unwrap();
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
    }
}

#[test]
fn a_flipped_bit_in_an_index_loses_no_record() {
    let dir = tempfile::tempdir().unwrap();
    let large = LogSettings { segment_bytes: 1 << 20, ..settings() };
    let mut log = open_with(dir.path(), large.clone());
    for i in 0..250 {
        put(&mut log, 9, NOBODY, false, i);
    }
    log.close().unwrap();
    let (size, next) = (log.size(), log.next());
    drop(log);
    let index = with_ending(dir.path(), "index").remove(0);
    let good = fs::read(&index).unwrap();
    assert!(good.len() > 8 * 5);
    for at in 0..good.len() {
        for bit in [0, 4, 7] {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            fs::write(&index, bad).unwrap();
            let log = open_with(dir.path(), large.clone());
            assert_eq!((log.size(), log.next()), (size, next), "byte {at} bit {bit}");
            for offset in (0..next).step_by(333) {
                let found = read_all(&log, offset, true);
                assert_eq!(found[0].base_offset, offset / 9 * 9, "byte {at} bit {bit}");
                assert_eq!(found.len() as i64, 250 - offset / 9);
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_a_batch_takes_no_other_batch_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    let mut starts = Vec::new();
    for i in 0..6 {
        starts.push(log.size() as usize);
        put(&mut log, 2, NOBODY, false, i);
    }
    log.close().unwrap();
    drop(log);
    let file = with_ending(dir.path(), "log").remove(0);
    let good = fs::read(&file).unwrap();
    let (mut refused, mut kept) = (0, 0);
    for at in 0..starts[5] {
        for bit in [0, 7] {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            fs::write(&file, &bad).unwrap();
            let opened = Log::open(
                dir.path().to_owned(),
                Arc::new(settings()),
                &Known::default(),
                0,
                crate::faults::DiskFull::default(),
            );
            assert_eq!(fs::read(&file).unwrap(), bad, "byte {at} bit {bit}: nothing is cut");
            match opened {
                Ok(log) => {
                    kept += 1;
                    let whole = log.segments[0].walk(0).count();
                    assert_eq!((whole, log.next()), (6, 12), "byte {at} bit {bit}");
                }
                Err(e) => {
                    refused += 1;
                    let text = e.to_string();
                    assert!(text.contains(&file.display().to_string()) && text.contains("damaged at byte"), "{text}");
                }
            }
        }
    }
    assert!(refused > 0 && kept > refused, "{refused} {kept}");
    // The last batch may as well be one that was never finished.
    for at in starts[5]..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&file, &bad).unwrap();
        assert!(open(dir.path()).segments[0].walk(0).count() >= 5, "byte {at}");
    }
}

#[test]
fn a_damaged_end_of_a_closed_segment_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    for i in 0..60 {
        put(&mut log, 3, NOBODY, false, i);
    }
    log.close().unwrap();
    let (size, next, path) = (log.size(), log.next(), log.segments[0].path.clone());
    drop(log);
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let log = open(dir.path());
    assert_eq!((log.size(), log.next()), (size, next));
}
