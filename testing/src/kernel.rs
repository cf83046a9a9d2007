//! Decides whether a test that needs a kernel feature may be skipped.

/// Whether a missing kernel feature must fail a test: on CI, or with `PORTCULLIS_REQUIRE_KERNEL`,
/// regardless of their values.
#[must_use]
pub fn kernel_is_required() -> bool {
    std::env::var_os("CI").is_some() || std::env::var_os("PORTCULLIS_REQUIRE_KERNEL").is_some()
}

/// Returns whether a kernel feature is available, so that a test that needs it can skip.
///
/// # Panics
/// If the feature is missing and [`kernel_is_required`].
#[must_use]
pub fn kernel_or_skip(feature: &str, is_available: bool) -> bool {
    if !is_available {
        assert!(!kernel_is_required(), "this kernel lacks {feature}, which the test needs");
    }
    is_available
}
