//! Where things are: configuration, state and socket, in system mode and in personal mode.

use std::path::{Path, PathBuf};

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
    pub fn find(config: Option<PathBuf>, state: Option<PathBuf>, socket: Option<PathBuf>) -> Self {
        let mode = Mode::current();
        let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let home = var("HOME").unwrap_or_else(|| "/".into());
        let (d_config, d_state, d_socket) = match mode {
            Mode::System => ("/etc/pando/pando.toml".into(), "/var/lib/pando".into(), "/run/pando/pando.sock".into()),
            Mode::Personal => {
                let config = var("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
                let state = var("XDG_STATE_HOME").unwrap_or_else(|| home.join(".local/state")).join("pando");
                let run = var("XDG_RUNTIME_DIR").map(|d| d.join("pando")).unwrap_or_else(|| state.clone());
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

    /// Directory of the identity.
    pub fn identity(&self) -> PathBuf {
        self.state.join("identity")
    }

    /// The list of members.
    pub fn members(&self) -> PathBuf {
        self.state.join("members.json")
    }
}

/// Writes `bytes` so that a crash leaves the old file or the new one.
pub fn replace_file(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let new = file.with_extension("new");
    let mut out = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    out.write_all(bytes)?;
    out.sync_data()?;
    std::fs::rename(new, file)
}
