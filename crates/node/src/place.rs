//! Where things are: configuration, state and socket, in system mode and in personal mode.

use std::path::{Path, PathBuf};

/// Where the system's node serves all users.
const SYSTEM_SOCKET: &str = "/run/pando/pando.sock";

/// Whose node this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Root's: many users.
    System,
    /// An ordinary user's: own processes only.
    Personal,
}

impl Mode {
    /// Decided by who runs this.
    pub fn current() -> Self {
        if crate::sys::effective_uid() == 0 { Mode::System } else { Mode::Personal }
    }

    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::System => "system",
            Mode::Personal => "personal",
        }
    }
}

/// The places.
#[derive(Clone, Debug)]
pub struct Place {
    /// Whose.
    pub mode: Mode,
    /// Configuration file.
    pub config: PathBuf,
    /// State directory.
    pub state: PathBuf,
    /// Local API socket.
    pub socket: PathBuf,
}

impl Place {
    /// From options, then the environment (`PANDO_STATE`, `PANDO_SOCKET`), then the mode's defaults.
    ///
    /// In personal mode the socket is in the directory that `PANDO_STATE` names, for the node and for who speaks to it: several nodes of one
    /// user do not get into each other's way. Not so with the option `--state`, of which commands know nothing; and not in system mode,
    /// where the state is closed to the users whom the node serves.
    pub fn find(config: Option<PathBuf>, state: Option<PathBuf>, socket: Option<PathBuf>) -> Self {
        let mode = Mode::current();
        let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let home = var("HOME").unwrap_or_else(|| "/".into());
        let (d_config, d_state, d_socket) = match mode {
            Mode::System => ("/etc/pando/pando.toml".into(), "/var/lib/pando".into(), SYSTEM_SOCKET.into()),
            Mode::Personal => {
                let config = var("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
                let state = var("XDG_STATE_HOME").unwrap_or_else(|| home.join(".local/state")).join("pando");
                let run = var("XDG_RUNTIME_DIR").map(|d| d.join("pando"));
                let run = var("PANDO_STATE").or(run).unwrap_or_else(|| state.clone());
                (config.join("pando/pando.toml"), state, run.join("pando.sock"))
            }
        };
        Place {
            mode,
            config: config.unwrap_or(d_config),
            state: state.or_else(|| var("PANDO_STATE")).unwrap_or(d_state),
            socket: socket.or_else(|| var("PANDO_SOCKET")).unwrap_or(d_socket),
        }
    }

    /// The socket that commands speak to: that of the user's own node, or of the system's where the user has none.
    pub fn to_speak_to() -> PathBuf {
        let own = Place::find(None, None, None);
        let said = std::env::var_os("PANDO_SOCKET").is_some_and(|v| !v.is_empty());
        match own.mode == Mode::Personal && !said && !own.socket.exists() && Path::new(SYSTEM_SOCKET).exists() {
            true => SYSTEM_SOCKET.into(),
            false => own.socket,
        }
    }

    /// Directory of the identity.
    pub fn identity(&self) -> PathBuf {
        self.state.join("identity")
    }

    /// The list of members.
    pub fn members(&self) -> PathBuf {
        self.state.join("members.json")
    }
}

/// Writes `bytes` so that a crash leaves the old file or the new one. One writer of a file at a time.
pub fn replace_file(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let new = file.with_extension("new");
    let mut out = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    out.write_all(bytes)?;
    out.sync_data()?;
    std::fs::rename(new, file)
}
