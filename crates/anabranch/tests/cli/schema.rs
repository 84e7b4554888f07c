//! The keywords of JSON schemas that docs/json.schema.json uses; any other one fails the test.

use regex_automata::hybrid::regex::Regex;
use serde_json::{Map, Value};

/// A schema.
pub(crate) struct Schema(Value);

impl Schema {
    pub(crate) fn of_the_stream() -> Schema {
        let text = include_str!("../../../../docs/json.schema.json");
        Schema(serde_json::from_str(text).unwrap())
    }

    /// Checks a value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        self.against(&self.0, value)
    }

    fn against(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let keywords = schema.as_object().unwrap();
        for (keyword, wants) in keywords {
            let fits = match keyword.as_str() {
                "$schema" | "$defs" | "title" | "description" => true,
                "$ref" => {
                    let name = wants.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                    self.against(&self.0["$defs"][name], value)?;
                    true
                }
                "oneOf" => {
                    let tried = wants.as_array().unwrap().iter();
                    let results: Vec<_> = tried.map(|one| self.against(one, value)).collect();
                    let fitting = results.iter().filter(|result| result.is_ok()).count();
                    if fitting != 1 {
                        return Err(format!("{fitting} of {results:?} fit {value}"));
                    }
                    true
                }
                "const" => value == wants,
                "enum" => wants.as_array().unwrap().contains(value),
                "type" => match wants {
                    Value::Array(types) => types.iter().any(|one| is_of(value, one)),
                    one => is_of(value, one),
                },
                "minimum" => value.as_f64().is_none_or(|number| number >= wants.as_f64().unwrap()),
                "maximum" => value.as_f64().is_none_or(|number| number <= wants.as_f64().unwrap()),
                "pattern" => {
                    let pattern = Regex::new(wants.as_str().unwrap()).unwrap();
                    let mut cache = pattern.create_cache();
                    value.as_str().is_none_or(|text| pattern.is_match(&mut cache, text))
                }
                "items" => {
                    for item in value.as_array().into_iter().flatten() {
                        self.against(wants, item)?;
                    }
                    true
                }
                "required" => {
                    let names = wants.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                    value.as_object().is_none_or(|object| {
                        names.into_iter().all(|name| object.contains_key(name))
                    })
                }
                "properties" => {
                    self.properties(wants.as_object().unwrap(), value)?;
                    true
                }
                "additionalProperties" => {
                    assert_eq!(*wants, Value::Bool(false));
                    let known = keywords["properties"].as_object().unwrap();
                    let names = value.as_object().into_iter().flat_map(Map::keys);
                    names.into_iter().all(|name| known.contains_key(name))
                }
                other => panic!("the test knows no keyword '{other}'"),
            };
            if !fits {
                return Err(format!("{keyword} {wants}: {value}"));
            }
        }
        Ok(())
    }

    fn properties(&self, schemas: &Map<String, Value>, value: &Value) -> Result<(), String> {
        for (name, value) in value.as_object().into_iter().flatten() {
            if let Some(schema) = schemas.get(name) {
                self.against(schema, value).map_err(|error| format!("{name}: {error}"))?;
            }
        }
        Ok(())
    }
}

fn is_of(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("the test knows no type '{other}'"),
    }
}
