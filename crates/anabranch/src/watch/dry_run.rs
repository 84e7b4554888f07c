//! A dry run for people: a line for each change, and their sum.

use events::{Action, Changed, DryRun, PlannedChange};
use units::Bytes;

use crate::sanitize::clean;

/// The lines: "create   4.0 MB  tree/a", and the sum.
pub(super) fn lines(dry_run: &DryRun) -> impl Iterator<Item = String> {
    dry_run.changes.iter().map(line).chain([sum(dry_run)])
}

/// The name of what would happen.
pub(super) fn action(action: Action) -> &'static str {
    match action {
        Action::Create => "create",
        Action::Replace => "replace",
        Action::Keep => "keep",
        Action::Update => "update",
        Action::Delete => "delete",
    }
}

/// The name of what would change.
pub(super) fn kind(what: Changed) -> &'static str {
    match what {
        Changed::File(_) => "file",
        Changed::Folder => "folder",
        Changed::Link => "link",
    }
}

fn line(change: &PlannedChange) -> String {
    let what = match change.what {
        Changed::File(size) => size.to_string(),
        other => kind(other).to_string(),
    };
    let slash = if change.what == Changed::Folder { "/" } else { "" };
    format!("{:7}  {what:>9}  {}{slash}", action(change.action), clean(&change.name))
}

/// "3 files to create, 24.0 MB; 1 file to replace, 1.2 MB; 12 files there already, 1.00 GB; 25.2 MB
/// would be sent, nothing was".
fn sum(dry_run: &DryRun) -> String {
    let of = |wanted: Action| {
        let sizes = dry_run.changes.iter().filter(|change| change.action == wanted);
        let sizes = sizes.filter_map(|change| match change.what {
            Changed::File(size) => Some(size),
            Changed::Folder | Changed::Link => None,
        });
        let (count, size) =
            sizes.fold((0, Bytes::ZERO), |(count, sum), size| (count + 1, sum + size));
        (count, size)
    };
    let (create, created) = of(Action::Create);
    let (replace, replaced) = of(Action::Replace);
    let DryRun { sent, unchanged, unchanged_size, .. } = dry_run;
    let mut parts = vec![format!("{} to create, {created}", count(create))];
    if replace > 0 {
        parts.push(format!("{} to replace, {replaced}", count(replace)));
    }
    let updates = dry_run.changes.iter().filter(|change| change.action == Action::Update).count();
    if updates > 0 {
        parts.push(format!("owner, mode or attributes of {updates} to set"));
    }
    for (action, text) in [(Action::Keep, "differ and would stay"), (Action::Delete, "to delete")] {
        let (some, size) = of(action);
        if some > 0 {
            parts.push(format!("{} {text}, {size}", count(some)));
        }
    }
    if *unchanged > 0 {
        parts.push(format!("{} there already, {unchanged_size}", count(*unchanged)));
    }
    parts.push(format!("{sent} would be sent, nothing was"));
    parts.join("; ")
}

pub(super) fn count(files: usize) -> String {
    if files == 1 { "1 file".into() } else { format!("{files} files") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_a_line_each_and_a_sum() {
        let change = |action, name: &str, what| PlannedChange { action, name: name.into(), what };
        let dry_run = DryRun {
            transfer: 0,
            changes: vec![
                change(Action::Create, "tree", Changed::Folder),
                change(Action::Create, "tree/a\u{1b}[2J", Changed::File(Bytes(4_000_000))),
                change(Action::Replace, "tree/b", Changed::File(Bytes(120))),
                change(Action::Create, "tree/c", Changed::Link),
                change(Action::Update, "tree/d", Changed::Folder),
            ],
            sent: Bytes(4_000_120),
            unchanged: 12,
            unchanged_size: Bytes(1_000_000_000),
        };
        let lines: Vec<String> = lines(&dry_run).collect();
        assert_eq!(
            lines,
            [
                "create      folder  tree/",
                "create      4.0 MB  tree/a\\u{1b}[2J",
                "replace      120 B  tree/b",
                "create        link  tree/c",
                "update      folder  tree/d/",
                "1 file to create, 4.0 MB; 1 file to replace, 120 B; owner, mode or attributes of \
                 1 to set; 12 files there already, 1.00 GB; 4.0 MB would be sent, nothing was",
            ]
        );
    }
}
