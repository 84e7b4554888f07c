//! `gateway doctor`: what the system does to a gateway's packets.

use ::gateway::{GatewayConfig, examine};
use serde_json::json;

use crate::exit::Failure;
use crate::sanitize::{clean, clean_json};

/// The exit code if something is wrong.
const PROBLEM: u8 = 1;

/// Prints what was found, a line each, with what to do.
///
/// # Errors
/// [`Failure::Code`], if something is wrong.
pub(super) fn show(config: &GatewayConfig, is_json: bool) -> Result<(), Failure> {
    let findings = examine(config);
    for finding in &findings {
        let (subject, text) = (finding.subject, &finding.text);
        if is_json {
            let remedy = &finding.remedy;
            let line = json!({ "subject": subject, "text": text, "remedy": remedy }).to_string();
            outln!("{}", clean_json(&line));
            continue;
        }
        let sign = if finding.remedy.is_some() { "problem" } else { "ok" };
        outln!("{sign:8} {subject}: {}", clean(text));
        if let Some(remedy) = &finding.remedy {
            outln!("         {}", clean(remedy));
        }
    }
    if findings.iter().any(|finding| finding.remedy.is_some()) {
        return Err(Failure::Code(PROBLEM));
    }
    Ok(())
}
