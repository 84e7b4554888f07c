//! Progress bars on a terminal: one for each path, one for the total.

use files::{Event, Progress, Summary};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use peer::PathState;
use units::PathId;

use super::{Watcher, text};
use crate::exit::Failure;
use crate::sanitize::clean;

/// The progress bars; nothing is drawn before the transfer starts.
pub(crate) struct Bars {
    all: MultiProgress,
    total: Option<ProgressBar>,
    paths: Vec<(PathId, ProgressBar)>,
    troubles: text::Troubles,
}

impl Bars {
    pub(crate) fn new() -> Bars {
        Bars {
            all: MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10)),
            total: None,
            paths: Vec::new(),
            troubles: text::Troubles::default(),
        }
    }

    /// Prints a permanent line above the bars.
    pub(crate) fn note(&self, line: &str) {
        // A closed terminal does not end a transfer.
        let _ = self.all.println(line);
    }

    /// Removes the bars.
    pub(crate) fn clear(&mut self) {
        for (_, bar) in self.paths.drain(..) {
            bar.finish_and_clear();
        }
        if let Some(bar) = self.total.take() {
            bar.finish_and_clear();
        }
        let _ = self.all.clear();
    }

    fn progress(&mut self, progress: &Progress) {
        if progress.paths.is_empty() && self.total.is_none() {
            return;
        }
        // A bar is complete before it is added, because adding draws it.
        let total = self.total.get_or_insert_with(|| {
            let style = "{wide_bar:.cyan/dim}  {msg}";
            let style = ProgressStyle::with_template(style)
                .expect("the template is constant")
                .progress_chars("━╸─");
            let bar = ProgressBar::hidden().with_style(style).with_message(text::total(progress));
            bar.set_length(progress.total.0);
            self.all.add(bar)
        });
        // A stream grows.
        total.set_length(progress.total.0);
        total.set_position(progress.done.0);
        total.set_message(text::total(progress));
        // A path that replaces a lost one has another id.
        self.paths.retain(|(id, bar)| {
            let stays = progress.paths.iter().any(|path| path.path == *id && shown(path.state));
            if !stays {
                bar.finish_and_clear();
                self.all.remove(bar);
            }
            stays
        });
        let width =
            progress.paths.iter().map(|path| path.name.chars().count()).max().unwrap_or(0).min(40);
        for path in progress.paths.iter().filter(|path| shown(path.state)) {
            let row = text::path_row(path, width);
            if let Some((_, bar)) = self.paths.iter().find(|(id, _)| *id == path.path) {
                bar.set_message(row);
                continue;
            }
            let style =
                ProgressStyle::with_template("{wide_msg}").expect("the template is constant");
            let bar = ProgressBar::hidden().with_style(style).with_message(row);
            self.paths.push((path.path, self.all.insert_before(&*total, bar)));
        }
    }
}

fn shown(state: PathState) -> bool {
    !matches!(state, PathState::Dropped)
}

impl Watcher for Bars {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Started { .. } => {
                self.clear();
                self.note(&text::started(event));
            }
            Event::Path(event) => {
                if let Some(line) = self.troubles.line(event) {
                    self.note(&line);
                }
            }
            Event::Notice { text } => self.note(&clean(text)),
            Event::Progress(progress) => self.progress(progress),
            Event::Listening { .. } | Event::FileDone { .. } => {}
        }
    }

    fn end(&mut self, _: &Result<Summary, Failure>) {
        self.clear();
    }
}
