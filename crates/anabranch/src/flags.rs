//! The flags of every command that begins a transfer: what of the files, how, and over what.

use std::path::PathBuf;

use net::{Error, Identity, Selection, TransferOptions};

use crate::config::Config;
use crate::dirs::Dirs;
use crate::routes::RouteArgs;
use crate::watch;

/// What of the files, how, and over what.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct TransferFlags {
    #[command(flatten)]
    routes: RouteArgs,
    /// Only files that match GLOB, written as in .gitignore, or are in a folder that does; may be
    /// repeated
    #[arg(long, value_name = "GLOB", help_heading = "Selection")]
    include: Vec<String>,
    /// No files that match GLOB, written as in .gitignore, and nothing in a folder that does; may
    /// be repeated
    #[arg(long, value_name = "GLOB", help_heading = "Selection")]
    exclude: Vec<String>,
    /// What has not changed is told by contents, not by size and time
    #[arg(long, help_heading = "Selection")]
    checksum: bool,
    /// Read each file back from the disk where it arrives before it gets its name
    #[arg(long)]
    verify: bool,
    /// Forget what an earlier attempt brought over
    #[arg(long)]
    restart: bool,
    /// Replace files that exist where it arrives
    #[arg(long)]
    overwrite: bool,
    /// Agree on everything, transfer nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Defaults from FILE [default: anabranch/config.toml in the user's configuration folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    watch: watch::WatchArgs,
}

impl TransferFlags {
    /// The configuration that they name, or the user's.
    ///
    /// # Errors
    /// Those of reading it.
    pub(crate) fn config(&self, dirs: &Dirs) -> Result<Config, Error> {
        Config::load(self.config.as_deref(), dirs)
    }

    /// What watches the transfer.
    pub(crate) fn watcher(&mut self, config: &Config) -> Box<dyn watch::Watcher> {
        std::mem::take(&mut self.watch).watcher(config.progress)
    }

    /// What of the files is meant, of those in `files_from` if that is given, and the transfer by
    /// the holder of this key.
    pub(crate) fn options(
        self,
        files_from: Option<Vec<PathBuf>>,
        identity: Identity,
        config: &Config,
        dirs: &Dirs,
    ) -> (Selection, TransferOptions) {
        let TransferFlags {
            routes,
            include,
            exclude,
            checksum,
            verify,
            restart,
            overwrite,
            dry_run,
            ..
        } = self;
        let routes = routes.or(config);
        let options = TransferOptions {
            identity,
            paths: routes.paths,
            no_paths: routes.no_paths,
            scheduler: routes.scheduler,
            congestion_control: routes.congestion_control,
            max_rate: routes.max_rate,
            usage: Some(dirs.usage()),
            verify: verify || config.send.verify,
            restart,
            overwrite,
            dry_run,
            patience: routes.patience,
        };
        (Selection { include, exclude, files_from, checksum }, options)
    }
}
