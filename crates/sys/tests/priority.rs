//! The place of a process behind others. It has a process of its own, since it cannot go back.

use std::sync::mpsc;
use std::thread;

use rustix::process::getpriority_process;

#[test]
fn all_threads_step_back_and_those_that_they_start() {
    let niceness = || getpriority_process(None).expect("of this thread");
    let (go, wait) = mpsc::channel::<()>();
    let earlier = thread::spawn(move || {
        wait.recv().expect("the test goes on");
        let child = thread::spawn(niceness).join().expect("it ends");
        [niceness(), child]
    });
    sys::priority::step_back(10).expect("everybody may");
    sys::priority::step_back(5).expect("everybody may");
    go.send(()).expect("it waits");
    assert_eq!(earlier.join().expect("it ends"), [10, 10], "what is nicer stays");
}
