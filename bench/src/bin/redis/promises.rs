//! What Tollkeeper promises, and whether this run kept it.

/// How a measure relates to its target.
#[derive(Clone, Copy)]
pub enum Bound {
    AtLeast,
    AtMost,
    Above,
}

#[derive(Default)]
pub struct Promises(Vec<String>);

impl Promises {
    pub fn check(&mut self, what: String, measured: f64, than: Bound, target: f64) {
        let (is_met, words) = match than {
            Bound::AtLeast => (measured >= target, "at least"),
            Bound::AtMost => (measured <= target, "at most"),
            Bound::Above => (measured > target, "more than"),
        };
        let verdict = if is_met { "met" } else { "missed" };
        let target = (target * 10.0).round() / 10.0;
        self.0.push(format!("| {what} | {words} {target} | {measured:.2} | {verdict} |"));
    }

    pub fn print(&self) {
        println!("### Promises\n\n| promise | target | measured | |\n|---|---:|---:|---|");
        self.0.iter().for_each(|row| println!("{row}"));
    }
}
