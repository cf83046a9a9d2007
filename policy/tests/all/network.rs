//! The network: requests, redirects, addresses, and the keys that grant them.

mod address;
mod judge;
mod load;

use portcullis_policy::{Denial, DenialCode, Grant, JudgedRequest};
use portcullis_types::SafetyTier;

use crate::support::{BASE, decide, load, tool};

/// A policy whose tool `t` may fetch.
fn operator(egress: &str) -> String {
    format!(
        "{BASE}
[profiles.Net]
hosts = ['https://api.example.com', 'https://*.example.com:8443', 'http://*', 'http://*:8080']
[tools.t]
profile = 'Net'
[egress]
{egress}"
    )
}

fn grant_of(text: &str) -> Grant {
    decide(&load(text), &tool("t", SafetyTier::ReadOnly), &[]).expect("granted")
}

fn grant() -> Grant {
    grant_of(&operator(""))
}

fn get(url: &str) -> Result<JudgedRequest, Denial> {
    grant().judge_request("GET", url)
}

#[track_caller]
fn judged(url: &str) -> JudgedRequest {
    get(url).unwrap_or_else(|denial| panic!("{url}: {denial}"))
}

#[track_caller]
fn check_denied<T: std::fmt::Debug>(result: Result<T, Denial>, code: DenialCode, rule: &str, hint: &str) {
    let denial = result.expect_err("is denied");
    assert_eq!((denial.code, denial.rule.as_str()), (code, rule), "{denial}");
    assert!(denial.hint.contains(hint), "{denial}");
}
