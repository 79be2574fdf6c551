//! Quantiles of what was measured.

/// The value below which this share of the measurements lies; 0 if there are none.
pub(crate) fn quantile(measured: &mut [f64], share: f64) -> f64 {
    measured.sort_by(f64::total_cmp);
    let last = measured.len().saturating_sub(1);
    measured.get((last as f64 * share).round() as usize).copied().unwrap_or(0.0)
}
