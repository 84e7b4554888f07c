//! A page of figures and tables: one HTML file without scripts and external resources, in light or
//! dark mode as the reader prefers.
//!
//! ```
//! use report::page::Page;
//! use report::plot::Figure;
//! let mut page = Page::new("Harp, reproduced");
//! page.heading("Figure 5");
//! let figure = Figure::new("Background throughput");
//! page.figure(&figure, "Ten runs each.", [("the scenario", "figure5.toml")]);
//! assert!(page.html().starts_with("<!DOCTYPE html>"));
//! ```

use std::fmt::Write;

use crate::markup::escape;
use crate::plot::{FIXED_INKS, Figure, PALETTE};
use crate::table::Table;
use crate::verdict::Verdict;

/// A page builder. All texts are plain: markup in them is escaped.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    headings: Vec<String>,
    body: String,
}

impl Page {
    /// A page with a title and no content.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Page {
        Page { title: title.into(), headings: Vec::new(), body: String::new() }
    }

    /// Begins a section. A page with two or more sections has a table of contents.
    pub fn heading(&mut self, text: &str) {
        self.headings.push(text.to_string());
        let _ =
            writeln!(self.body, "<h2 id=\"section-{}\">{}</h2>", self.headings.len(), escape(text));
    }

    /// Adds a paragraph.
    pub fn text(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escape(text));
    }

    /// Adds a figure with a caption and links below it; a link is a text and an address.
    pub fn figure<'a>(
        &mut self,
        figure: &Figure,
        caption: &str,
        links: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) {
        let _ = writeln!(
            self.body,
            "<figure>\n{}<figcaption>{}{}</figcaption>\n</figure>",
            figure.svg(),
            escape(caption),
            anchors(links)
        );
    }

    /// Adds a table with a caption above it.
    pub fn table(&mut self, table: &Table, caption: &str) {
        self.wide(caption, &table.html());
    }

    /// Adds the table of a reproduction, with its caption and summary above it.
    pub fn verdict(&mut self, verdict: &Verdict, caption: &str) {
        let caption = if caption.is_empty() {
            verdict.summary()
        } else {
            format!("{caption}: {}", verdict.summary())
        };
        self.wide(&caption, &verdict.html());
    }

    /// Adds a list of links; a link is a text and an address.
    pub fn links<'a>(&mut self, links: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.body += "<ul>\n";
        for (text, address) in links {
            let _ = writeln!(self.body, "<li>{}</li>", anchor(text, address));
        }
        self.body += "</ul>\n";
    }

    /// The whole page. [`write`](crate::write()) puts it into a file.
    #[must_use]
    pub fn html(&self) -> String {
        let title = escape(&self.title);
        let mut contents = String::new();
        if self.headings.len() > 1 {
            contents += "<nav><ul>\n";
            for (at, heading) in self.headings.iter().enumerate() {
                let _ = writeln!(
                    contents,
                    "<li><a href=\"#section-{}\">{}</a></li>",
                    at + 1,
                    escape(heading)
                );
            }
            contents += "</ul></nav>\n";
        }
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <meta name=\"color-scheme\" content=\"light \
             dark\"/>\n<title>{title}</title>\n<style>\n{STYLE}{}</style>\n</head>\n\
             <body>\n<h1>{title}</h1>\n{contents}{}</body>\n</html>\n",
            dark(),
            self.body,
        )
    }

    fn wide(&mut self, caption: &str, table: &str) {
        // A wide table scrolls by itself on narrow screens.
        let caption = if caption.is_empty() {
            String::new()
        } else {
            format!("<p class=\"caption\">{}</p>\n", escape(caption))
        };
        let _ = writeln!(self.body, "{caption}<div class=\"wide\">\n{table}</div>");
    }
}

fn anchors<'a>(links: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let anchors: Vec<String> =
        links.into_iter().map(|(text, address)| anchor(text, address)).collect();
    if anchors.is_empty() { String::new() } else { format!(" {}", anchors.join(" · ")) }
}

/// A link; only the text if the address has a scheme that could run a script.
fn anchor(text: &str, address: &str) -> String {
    let scheme = address.split_once(':').map(|(scheme, _)| scheme.trim().to_ascii_lowercase());
    let harmless = scheme.is_none_or(|scheme| {
        ["http", "https", "mailto"].contains(&scheme.as_str()) || scheme.contains('/')
    });
    if harmless {
        format!("<a href=\"{}\">{}</a>", escape(address), escape(text))
    } else {
        escape(text)
    }
}

const STYLE: &str = "\
:root { color-scheme: light dark; --paper: #fff; --ink: #222; --faint: #666; --rule: #ddd; \
    --link: #0061a8; --pass: #00734f; --differs: #b34700; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #181a1d; --ink: #e4e4e4; --faint: #a0a4a8; --rule: #3a3d41; --link: #6cb8ee; \
    --pass: #35c79b; --differs: #f59045; }
}
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--paper); color: \
    var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
a { color: var(--link); }
figure { margin: 1.5rem 0; }
figure svg { display: block; max-width: 100%; height: auto; }
figcaption, .caption { color: var(--faint); margin: .5rem 0; }
.wide { overflow-x: auto; margin-bottom: 1.5rem; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--rule); text-align: left; \
    vertical-align: top; }
th { color: var(--faint); font-weight: 600; } td.number, th.number { text-align: right; \
    white-space: nowrap; }
tr.pass td:last-child { color: var(--pass); } tr.differs td:last-child, tr.missing td:last-child \
    { color: var(--differs); }
";

/// The colours of figures on dark pages: CSS rules override the attributes of the SVG.
fn dark() -> String {
    let mut rules = String::from("@media (prefers-color-scheme: dark) {\n");
    let hex = |(red, green, blue): (u8, u8, u8)| format!("#{red:02X}{green:02X}{blue:02X}");
    for (light, dark) in FIXED_INKS.iter().chain(&PALETTE) {
        let (light, dark) = (hex(*light), hex(*dark));
        let _ = writeln!(
            rules,
            "  svg [fill=\"{light}\"] {{ fill: {dark}; }} svg [stroke=\"{light}\"] {{ stroke: \
             {dark}; }}"
        );
    }
    rules + "}\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Axis, Panel, Series};
    use crate::table::Align;
    use crate::verdict::{Expected, Row, Tolerance};

    const EVIL: &str = "<script>alert('\"&\"')</script>\u{1}";

    #[test]
    fn names_are_escaped() {
        let mut page = Page::new(EVIL);
        page.heading(EVIL);
        page.heading("second");
        page.text(EVIL);
        let axis = || Axis::new(EVIL, EVIL);
        let panel = Panel::new(axis(), axis())
            .title(EVIL)
            .series(Series::line(EVIL, [(0.0, 1.0), (1.0, 2.0)]));
        page.figure(
            &Figure::new(EVIL).panel(panel),
            EVIL,
            [(EVIL, EVIL), ("run", "javascript:alert(1)"), ("all", "a/b.csv?x=1&y=2")],
        );
        let mut table = Table::new([(EVIL, Align::Left), ("n", Align::Right)]);
        table.row([EVIL, "1"]);
        page.table(&table, EVIL);
        let row =
            Row::new(EVIL, EVIL, EVIL, Expected::Value(1.0), Tolerance::NONE, None).because(EVIL);
        page.verdict(&Verdict::new([row]), EVIL);
        let html = page.html();
        assert!(!html.contains("<script"));
        // Without its first line, it is XML too.
        let tree = roxmltree::Document::parse(html.split_once('\n').unwrap().1).unwrap();
        let shown = EVIL.replace('\u{1}', "\u{fffd}");
        let texts = tree
            .descendants()
            .filter(roxmltree::Node::is_text)
            .filter(|node| node.text().unwrap().contains(&shown))
            .count();
        assert!(texts >= 16, "{texts}");
        let addresses: Vec<_> =
            tree.descendants().filter_map(|node| node.attribute("href")).collect();
        assert_eq!(addresses, ["#section-1", "#section-2", &shown, "a/b.csv?x=1&y=2"]);
    }

    #[test]
    fn every_colour_of_a_figure_has_a_dark_one() {
        let series = (0..9).map(|n| Series::line(n.to_string(), [(0.0, 1.0), (1.0, f64::from(n))]));
        let panel =
            Panel::new(Axis::new("x", ""), Axis::new("y", "")).series(Series::level("theory", 1.0));
        let svg = Figure::new("all").panel(series.fold(panel, Panel::series)).svg();
        let rules = dark();
        let tree = roxmltree::Document::parse(&svg).unwrap();
        for (node, name) in
            tree.descendants().flat_map(|node| ["fill", "stroke"].map(|name| (node, name)))
        {
            if let Some(ink) = node.attribute(name).filter(|ink| *ink != "none") {
                assert!(rules.contains(&format!("[{name}=\"{ink}\"]")), "{name} {ink}");
            }
        }
    }
}
