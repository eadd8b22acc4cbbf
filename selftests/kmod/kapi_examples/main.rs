// SPDX-License-Identifier: GPL-2.0

//! Runs the examples in the documentation of kapi, as the kernel's own Rust examples are run.
//!
//! Loading runs each example and prints one `ok` or `not ok` line for it; it fails if one does. The
//! lab makes `examples_generated.rs` of the doc comments (`tools/lab/src/examples.rs`). Examples get
//! what they need of a kernel (devices, connections) in hidden lines, from the other files here.

mod iov;
mod tcp;
mod verbs;

use kapi::net::sock::GivenBack;
use kernel::{
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Full, Relaxed},
        SetOnce, //
    },
    time::{delay::fsleep, Delta}, //
};

module! {
    type: KapiExamples,
    name: "kapi_examples",
    authors: ["rsmc"],
    description: "runs the examples in the documentation of kapi",
    license: "GPL",
}

/// The name of an example and its code.
type Example = (&'static str, fn() -> Result);

/// Assertions of the present example that failed, in whichever thread.
static FAILED: Atomic<u32> = Atomic::new(0);

static MODULE: SetOnce<&'static ThisModule> = SetOnce::new();

/// Returns this module, for registrations.
fn this_module() -> Result<&'static ThisModule> {
    MODULE.copy().ok_or(ENODEV)
}

/// Notes an assertion and goes on: a panic would stop the kernel.
fn expect(holds: bool, what: &str) {
    if !holds {
        FAILED.fetch_add(1, Full);
        pr_err!("assertion failed: {}\n", what);
    }
}

// What the examples have in place of the language's macros of these names.
macro_rules! assert {
    ($condition:expr $(,)?) => {
        crate::expect($condition, stringify!($condition))
    };
}
macro_rules! assert_eq {
    ($left:expr, $right:expr $(,)?) => {
        crate::expect(
            $left == $right,
            concat!(stringify!($left), " == ", stringify!($right)),
        )
    };
}

include!("examples_generated.rs");

/// Waits until `done`, for at most ten seconds.
fn wait(done: impl Fn() -> bool) -> Result {
    for _ in 0..10_000 {
        if done() {
            return Ok(());
        }
        fsleep(Delta::from_millis(1));
    }
    Err(ETIMEDOUT)
}

/// Runs all examples; fails if one did.
fn run() -> Result {
    // Until all that examples gave back is freed.
    let _given_back = GivenBack::new();
    let (mut ran, mut bad) = (0, 0);
    for (name, example) in EXAMPLES {
        FAILED.store(0, Relaxed);
        let result = example();
        match (result, FAILED.load(Acquire)) {
            (Ok(()), 0) => pr_info!("ok {}\n", name),
            (result, failed) => {
                bad += 1;
                pr_err!("{} failed assertions, {:?}\n", failed, result);
                pr_err!("not ok {}\n", name);
            }
        }
        ran += 1;
    }
    pr_info!("{} of {} examples ran\n", ran, EXTRACTED);
    if bad == 0 {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

struct KapiExamples;

impl kernel::Module for KapiExamples {
    fn init(module: &'static ThisModule) -> Result<Self> {
        MODULE.populate(module);
        run().map(|()| Self)
    }
}
