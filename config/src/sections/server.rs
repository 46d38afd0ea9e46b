//! Section `server`: addresses, data folder and identity of one process.

use std::{env, fs, net::SocketAddr, path::PathBuf, time::Duration};

use crate::section::{between, section};

section! {
    /// Addresses, data folder and identity of one process.
    pub struct Server {
        /// Address of the REST interface, IP and port; port 0 takes a free one. Any address but loopback needs `server.auth.allow_anonymous`.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8080));

        /// Address of `/livez`, `/readyz` and `/metrics`, which show no data and need no login. Kept apart from `server.listen` so that a
        /// network policy can open it to the monitoring alone.
        probe_listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8081));

        /// Folder for local files. Nothing in it is needed to restart: it may be lost.
        data_dir: PathBuf = PathBuf::from("./millstream-data");

        /// Name of this process, unique and stable among the replicas: letters, digits, `.`, `_`, `-`. Part of transactional ids and client ids.
        /// `null`: the host name, which a StatefulSet keeps stable; `replica-0` where there is none.
        replica_id: Option<String> = None;

        /// Who may use the REST interface.
        auth: Auth = Auth::default();

        /// On SIGTERM: time to finish running requests and the epochs in flight. What is not done by then is done again after the restart; nothing is lost.
        shutdown_grace: Duration = Duration::from_secs(20), between(Duration::from_secs(1), Duration::from_secs(600));
    }
}

section! {
    /// Who may use the REST interface.
    pub struct Auth {
        /// Serve everybody who can reach `server.listen`. Without it Millstream refuses to start on an address that is not loopback.
        /// Set it only where the network keeps others out.
        allow_anonymous: bool = false;
    }
}

impl Server {
    /// The configured replica id, else the host name, else `replica-0`.
    pub fn replica_id(&self) -> String {
        self.replica_id.clone().or_else(host_name).unwrap_or_else(|| "replica-0".to_owned())
    }
}

fn host_name() -> Option<String> {
    let from_kernel = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = from_kernel.or_else(|| env::var("HOSTNAME").ok())?;
    let name = name.trim();
    // A host name outside this alphabet cannot be a replica id; the file then has to give one.
    (!name.is_empty() && crate::validate::is_plain_name(name)).then(|| name.to_owned())
}
