use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;

fn schema() -> Schema {
    Schema::new(
        [
            Key::new("seed", Kind::Integer, "", "the run's seed"),
            Key::new("link, \"wifi\"", Kind::Text, "", "which link"),
            Key::new("rtt", Kind::Real, "ms", "round trip without queue"),
        ],
        [
            Measure::new("goodput", "Mbit/s", "payload by time"),
            Measure::new("Jain's index", "", "fairness"),
        ],
    )
}

type Row = (Option<i64>, Option<String>, Option<f64>, bool, f64);

fn key<T, V: Into<Value>>(value: Option<T>, into: impl Fn(T) -> V) -> Value {
    value.map_or(Value::Missing, |value| into(value).into())
}

fn write(path: &Path, rows: &[Row]) {
    let mut writer = Writer::create(path, schema()).unwrap();
    for (seed, link, rtt, goodput, value) in rows {
        let keys = [key(*seed, |n| n), key(link.as_deref(), |text| text), key(*rtt, |n| n)];
        writer.row(&keys, if *goodput { "goodput" } else { "Jain's index" }, *value).unwrap();
    }
    writer.finish().unwrap();
}

proptest! {
    #[test]
    fn what_is_written_reads_back(
        rows in prop::collection::vec(
            (
                any::<Option<i64>>(),
                prop::option::of("(?s)[a,;\"'\r\n \u{e9}=]{0,8}|.{0,8}"),
                any::<Option<f64>>(),
                any::<bool>(),
                any::<f64>(),
            ),
            0..12,
        ),
    ) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("table.csv");
        write(&path, &rows);
        let mut reader = csv::Reader::from_path(&path).unwrap();
        let header: Vec<String> = reader.headers().unwrap().iter().map(str::to_string).collect();
        prop_assert_eq!(header, schema().columns().map(str::to_string).collect::<Vec<_>>());
        let read: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(read.len(), rows.len());
        for (record, (seed, link, rtt, goodput, value)) in read.iter().zip(rows) {
            prop_assert_eq!(&record[0], seed.map(|n| n.to_string()).unwrap_or_default());
            prop_assert_eq!(&record[1], link.unwrap_or_default());
            prop_assert_eq!(record[2].parse::<f64>().ok().map(f64::to_bits), rtt.map(f64::to_bits));
            prop_assert_eq!(&record[3], if goodput { "goodput" } else { "Jain's index" });
            prop_assert_eq!(record[4].parse::<f64>().unwrap().to_bits(), value.to_bits());
            prop_assert_eq!(&record[5], if goodput { "Mbit/s" } else { "" });
        }
    }
}

#[test]
fn the_schema_has_the_table_s_columns() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("table.csv");
    write(&path, &[]);
    let json: Json =
        serde_json::from_slice(&std::fs::read(place.path().join("table.schema.json")).unwrap())
            .unwrap();
    let columns = json["columns"].as_array().unwrap();
    let header = csv::Reader::from_path(&path).unwrap().headers().unwrap().clone();
    assert!(header.iter().eq(columns.iter().map(|column| column["name"].as_str().unwrap())));
    let types: Vec<&str> = columns.iter().map(|column| column["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["integer", "text", "real", "text", "real", "text"]);
    assert_eq!(
        (&columns[2]["unit"], &columns[2]["meaning"]),
        (&"ms".into(), &"round trip without queue".into())
    );
    assert_eq!(json["measures"][0]["unit"], "Mbit/s");
}

#[test]
fn rows_that_do_not_fit() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("table.csv");
    let mut writer = Writer::create(&path, schema()).unwrap();
    let good = [Value::Missing, Value::Missing, Value::Missing];
    let wrong = [Value::from("one"), Value::Missing, Value::Missing];
    for (keys, measure, expected) in [
        (&good[..2], "goodput", "a row of 2 keys in a table of 3"),
        (&good[..], "godput", "the schema has no measure godput"),
        (&wrong[..], "goodput", "the column seed holds whole numbers, and a row has Text(\"one\")"),
    ] {
        assert_eq!(writer.row(keys, measure, 1.0).unwrap_err().to_string(), expected);
    }
    drop(writer);
    assert_eq!(
        std::fs::read_dir(place.path()).unwrap().count(),
        0,
        "nothing is left of a table that was not finished"
    );
}

#[test]
fn tables_that_cannot_be() {
    let place = tempfile::tempdir().unwrap();
    let error = |name: &str, schema| {
        Writer::create(place.path().join(name), schema).unwrap_err().to_string()
    };
    assert!(error("table.xls", schema()).ends_with("table.xls: end its name in .csv or .parquet"));
    assert!(error("no/table.csv", schema()).ends_with("no does not exist; create it first"));
    let twice = Schema::new([Key::new("value", Kind::Real, "", "")], []);
    assert!(error("table.csv", twice).contains("two columns of the table are named value"));
    if cfg!(not(feature = "parquet")) {
        assert!(error("table.parquet", schema()).contains("--features parquet"));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_named() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("table.csv");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let mut writer = Writer::create(&path, schema()).unwrap();
    let row = [Value::Missing, Value::from("x"), Value::Missing];
    // More than the buffer holds: the error occurs while writing, not only at the end.
    let error = (0..10_000).find_map(|_| writer.row(&row, "goodput", 1.0).err()).unwrap();
    assert!(matches!(error, TidyError::Write(WriteError::Full { .. })), "{error:?}");
    assert!(error.to_string().contains("table.csv: no space left on the device"), "{error}");
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_reads_back() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("table.parquet");
    write(
        &path,
        &[(Some(1), Some("wifi".into()), None, true, 47.5), (None, None, Some(20.0), false, 0.9)],
    );
    let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    let about = reader.metadata().file_metadata().key_value_metadata().expect("units");
    let about = about.iter().find(|pair| pair.key == "anabranch.schema").expect("the schema");
    let about = about.value.as_ref().expect("a text");
    assert!(about.contains("\"unit\": \"ms\"") && about.contains("goodput"), "{about}");
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (rows[0].get_long(0).unwrap(), rows[0].get_string(1).unwrap().as_str()),
        (1, "wifi")
    );
    assert_eq!(
        (rows[0].get_double(4).unwrap(), rows[0].get_string(5).unwrap().as_str()),
        (47.5, "Mbit/s")
    );
    assert!(rows[1].get_long(0).is_err() && rows[1].get_string(1).is_err());
    assert_eq!(
        (rows[1].get_double(2).unwrap(), rows[1].get_string(3).unwrap().as_str()),
        (20.0, "Jain's index")
    );
    assert!(place.path().join("table.schema.json").exists());
}
