//! The list of codes: each number once, and the table of the documentation is made from it.

use wire::closing::{Closing, LIST};

#[test]
fn every_number_stands_once_and_in_order() {
    assert!(LIST.windows(2).all(|rows| rows[0].code.number() < rows[1].code.number()));
    for row in &LIST {
        assert_eq!(Closing::of(row.code), row);
        assert_eq!(Closing::of_number(row.code.number()), Some(row));
    }
    assert_eq!(Closing::of_number(7), None);
}

#[test]
fn the_table_of_the_documentation_is_this_list() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wire.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, table) = page.split_once("| code | name | sentence |\n|---|---|---|\n").unwrap();
    let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    let expected: Vec<String> = LIST
        .iter()
        .map(|row| format!("| 0x{:03x} | {} | {} |", row.code.number(), row.name, row.sentence))
        .collect();
    assert_eq!(
        rows,
        expected,
        "docs/wire.md has another table than wire/src/closing.rs:\n{}",
        expected.join("\n")
    );
}
