//! Two paths over a carrier that is not TCP enter one session; one of them is cut and comes back.

use std::time::Duration;

#[path = "../examples/unix_carrier.rs"]
#[allow(dead_code, reason = "main belongs to the example")]
mod unix_carrier;

#[tokio::test]
async fn a_path_that_was_cut_comes_back_into_its_session() {
    let folder = tempfile::tempdir().unwrap();
    let run = tokio::time::timeout(Duration::from_secs(30), unix_carrier::run(folder.path()));
    let bytes = run.await.expect("both paths came, said goodbye, and were heard").unwrap();
    assert!(bytes >= 3 * 4_096 && bytes.is_multiple_of(4_096), "{bytes}");
}
