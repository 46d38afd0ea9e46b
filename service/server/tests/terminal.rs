//! A process at a pseudo terminal: types, and waits for what it shows.

use std::{
    ffi::OsStr,
    fs::File,
    io::{Read, Write},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<(Mutex<String>, Condvar)>,
    /// What was looked at.
    at: usize,
}

impl Terminal {
    pub(crate) fn start<S: AsRef<OsStr>>(args: &[S]) -> Self {
        Self::start_sized(args, 24, 80)
    }

    pub(crate) fn start_sized<S: AsRef<OsStr>>(args: &[S], rows: u16, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let open = || Stdio::from(File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_millstream"))
            .args(args)
            .env("TERM", "xterm")
            .stdin(open())
            .stdout(open())
            .stderr(open())
            .spawn()
            .unwrap();
        let screen = Arc::new((Mutex::new(String::new()), Condvar::new()));
        let shown = Arc::clone(&screen);
        let mut output = File::from(master.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Reading fails when the process is gone.
            while let Ok(n @ 1..) = output.read(&mut buffer) {
                shown.0.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..n]));
                shown.1.notify_all();
            }
        });
        Self { child, keyboard: File::from(master), screen, at: 0 }
    }

    pub(crate) fn send(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until `text` was shown after what was expected before, and returns what came up to its end.
    pub(crate) fn expect(&mut self, text: &str) -> String {
        self.expect_within(text, DEADLINE)
    }

    pub(crate) fn expect_within(&mut self, text: &str, limit: Duration) -> String {
        let begun = Instant::now();
        let mut screen = self.screen.0.lock().unwrap();
        loop {
            if let Some(n) = screen[self.at..].find(text) {
                let end = self.at + n + text.len();
                let found = screen[self.at..end].to_owned();
                self.at = end;
                return found;
            }
            assert!(begun.elapsed() < limit, "no {text:?} in {:?}", &screen[self.at..]);
            screen = self.screen.1.wait_timeout(screen, Duration::from_millis(100)).unwrap().0;
        }
    }

    /// Ctrl-C as the terminal sends it to a running command.
    pub(crate) fn interrupt(&self) {
        assert!(Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap().success());
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < DEADLINE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
