//! What a dialing side reads of a refusal.

/// The reason of a refusal, with the remedy that hosts before version 7 do not name: they say which
/// version they speak.
#[must_use]
pub fn with_remedy(reason: String) -> String {
    let is_of_version = reason.starts_with("it speaks protocol version ");
    if is_of_version {
        return format!("{reason}: install the same version of anabranch on both hosts");
    }
    reason
}
