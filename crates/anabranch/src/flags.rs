//! The flags of every command that connects to transfer files: selection, options, paths.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use files::{CarrierChoice, Error, Selection, Stop, TransferOptions};
use peer::{DialOptions, Identity};
use stripe::Effort;

use crate::background::step_back;
use crate::compression::CompressChoice;
use crate::config::Config;
use crate::dirs::Dirs;
use crate::hooks::HookArgs;
use crate::relays::{MOST_CANDIDATES, relays};
use crate::routes::RouteArgs;
use crate::watch;

/// The parser of a pattern, which has any bytes as names do.
fn pattern() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|text| files::pattern(text.as_bytes()))
}

/// Selection of files, options of the transfer, paths.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct TransferFlags {
    #[command(flatten)]
    routes: RouteArgs,
    /// Only files that match GLOB (the syntax of .gitignore), or lie in a folder that matches; may
    /// be repeated
    #[arg(long, value_name = "GLOB", value_parser = pattern(), help_heading = "Selection")]
    include: Vec<String>,
    /// No files that match GLOB (the syntax of .gitignore), or lie in a folder that matches; may be
    /// repeated
    #[arg(long, value_name = "GLOB", value_parser = pattern(), help_heading = "Selection")]
    exclude: Vec<String>,
    /// Compare existing files by contents instead of size and time
    #[arg(long, help_heading = "Selection")]
    checksum: bool,
    /// End with an error at the first file or folder that cannot be read, instead of leaving it out
    #[arg(long, help_heading = "Selection")]
    strict: bool,
    /// Keep owners and groups as numbers, set-user-id bits, access lists, capabilities and extended
    /// attributes; a receiver must allow it with --archive, and needs to be root for most of it
    #[arg(long)]
    archive: bool,
    /// What is compressed on its way [default: auto]
    #[arg(long, value_enum, value_name = "WHEN")]
    compress: Option<CompressChoice>,
    /// Read each received file back from the disk before it gets its name
    #[arg(long)]
    verify: bool,
    /// Discard the data of an earlier attempt
    #[arg(long)]
    restart: bool,
    /// Replace files that exist at the destination
    #[arg(long)]
    overwrite: bool,
    /// Leave files that exist at the destination as they are, whatever differs
    #[arg(long, conflicts_with_all = ["overwrite", "update"])]
    ignore_existing: bool,
    /// Replace files that are older at the destination than at the source, and leave others as they
    /// are
    #[arg(long)]
    update: bool,
    /// Delete, in the folders that are named, what the source does not have; the receiver must
    /// allow it with --allow-delete
    #[arg(long)]
    delete: bool,
    /// With --delete, delete even more than 100 files and half of all
    #[arg(long, requires = "delete")]
    force_delete: bool,
    /// List what would be created, replaced and deleted, and transfer nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Defaults from FILE [default: anabranch/config.toml in the user's configuration folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    hooks: HookArgs,
    #[command(flatten)]
    watch: watch::WatchArgs,
}

impl TransferFlags {
    /// The configuration file of `--config`, or the user's, after a check of the flags.
    ///
    /// # Errors
    /// Those of [`RouteArgs::check`] and [`RouteArgs::check_carrier`], and of reading the file.
    pub(crate) fn config(&self, dirs: &Dirs) -> Result<Config, Error> {
        self.routes.check()?;
        let config = Config::load(self.config.as_deref(), dirs)?;
        self.routes.check_carrier(&config)?;
        Ok(config)
    }

    /// Checks what this host needs to send.
    ///
    /// # Errors
    /// Those of [`RouteArgs::check_congestion_control`].
    pub(crate) fn check_sending(&self, config: &Config) -> Result<(), Error> {
        self.routes.check_congestion_control(config)
    }

    /// Whether the transfer is in the background.
    ///
    /// # Errors
    /// Those of [`RouteArgs::effort`].
    pub(crate) fn effort(&self, config: &Config) -> Result<Effort, Error> {
        self.routes.effort(&config.send)
    }

    /// The other host is met at a relay.
    pub(crate) fn meet(&mut self) {
        self.routes.meet();
    }

    /// Whether a flag selects files.
    pub(crate) fn selects(&self) -> bool {
        !self.include.is_empty() || !self.exclude.is_empty() || self.checksum
    }

    /// Whether owners and attributes are kept.
    pub(crate) fn is_archive(&self) -> bool {
        self.archive
    }

    /// Whether nothing is transferred.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Whether events are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.watch.is_json()
    }

    /// Leaves standard output to the file that arrives.
    ///
    /// # Errors
    /// As [`watch::WatchArgs::leave_stdout`], and if the file would be read back from a disk.
    pub(crate) fn leave_stdout(&mut self) -> Result<(), Error> {
        if self.verify {
            let text = "--verify reads a file back from the disk, and this one goes to standard \
                        output";
            return Err(Error::usage(text));
        }
        if self.archive {
            let text = "--archive: standard output keeps neither owners nor attributes";
            return Err(Error::usage(text));
        }
        self.watch.leave_stdout()
    }

    /// The display of the transfer, and the commands at its end; `folder` is where files arrive
    /// here.
    pub(crate) fn watcher(
        &mut self,
        config: &Config,
        folder: Option<&Path>,
    ) -> Box<dyn watch::Watcher> {
        let watcher = std::mem::take(&mut self.watch).watcher(config.progress);
        let hooks = std::mem::take(&mut self.hooks).or_config(&config.send.hooks);
        hooks.at_end(folder, watcher)
    }

    /// The display of a transfer to each of several receivers, and the commands at the end of each.
    pub(crate) fn watcher_of_each(
        &mut self,
        config: &Config,
        to: watch::Names,
    ) -> Box<dyn watch::Watcher> {
        let watcher = std::mem::take(&mut self.watch).sending(config.progress, to);
        let hooks = std::mem::take(&mut self.hooks).or_config(&config.send.hooks);
        hooks.for_each(None, watcher)
    }

    /// The display of one transfer after another, and the commands at the end of each.
    pub(crate) fn watcher_of_runs(&mut self, config: &Config) -> Box<dyn watch::Watcher> {
        let watcher = std::mem::take(&mut self.watch).watcher(config.progress);
        let hooks = std::mem::take(&mut self.hooks).or_config(&config.send.hooks);
        hooks.for_each(None, watcher)
    }

    /// The selection of files, limited to `files_from` if given, and the options of a transfer with
    /// the key `identity`.
    ///
    /// # Errors
    /// Those of [`RouteArgs::or_config`] and of [`relays`].
    pub(crate) fn options(
        self,
        files_from: Option<Vec<PathBuf>>,
        identity: Identity,
        config: &Config,
        dirs: &Dirs,
    ) -> Result<(Selection, TransferOptions), Error> {
        let TransferFlags {
            routes,
            include,
            exclude,
            checksum,
            strict,
            archive,
            compress,
            verify,
            restart,
            overwrite,
            ignore_existing,
            update,
            delete,
            force_delete,
            dry_run,
            ..
        } = self;
        let routes = routes.or_config(config)?;
        step_back(routes.effort);
        let relays = relays(&routes.relays, &identity, dirs)?;
        // Over UDP the striped connection chooses, and has all of them.
        let is_tcp = matches!(routes.carrier, CarrierChoice::Tcp);
        let use_paths = routes.use_paths.filter(|_| is_tcp);
        let dial = DialOptions {
            identity,
            paths: routes.paths,
            no_paths: routes.no_paths,
            relays,
            has_direct: routes.has_direct,
            is_met: false,
            most_paths: if use_paths.is_some() { MOST_CANDIDATES } else { peer::MAX_PATHS },
            use_paths: routes.use_paths.filter(|_| !is_tcp),
            congestion_control: routes.congestion_control,
            parts: peer::Parts::default(),
            max_rate: routes.max_rate,
            usage: Some(dirs.usage()),
            patience: routes.patience,
            weight: routes.weight,
            effort: routes.effort,
        };
        let options = TransferOptions {
            dial,
            carrier: routes.carrier,
            use_paths,
            compression: compress.or(config.send.compress).unwrap_or_default().into(),
            scheduler: routes.scheduler,
            verify: verify || config.send.verify,
            restart,
            overwrite,
            keep_existing: ignore_existing,
            update,
            delete,
            force_delete,
            dry_run,
            stop: Stop::default(),
        };
        Ok((Selection { include, exclude, files_from, checksum, strict, archive }, options))
    }
}
