//! What traffic tells about limits: who sends how much, which limits would deny whom, and whether that looks like abuse.
//!
//! Two parts of Tollkeeper ask: the dashboard of a running service, about the last hour, and `tollkeeper tune`, about access logs. Both use the
//! same evidence, the same judgement and the same words ([`Finding`]), and both try other numbers with the same code ([`ByKey`]).
//!
//! | question | answer |
//! |---|---|
//! | which keys are busiest | [`HotKeys`], Space-Saving: every count with its error |
//! | what share of keys | [`Sample`], a uniform sample |
//! | do clients honour `Retry-After` | [`Behaviour`] |
//! | which limit would have been enough | [`Ladder`] while requests come in, [`ByKey`] for those remembered in a [`Journal`] |
//! | attack, or a badly tuned limit | [`Finding`] from [`Evidence`] |
//! | what do access logs say | [`Log`] and [`Report`] |
//!
//! All memory is bounded, and what did not fit is counted.

mod behaviour;
mod block;
mod buckets;
mod census;
mod demand;
mod evidence;
mod facts;
mod finding;
mod generator;
mod hash;
mod histogram;
mod hot_keys;
mod html;
mod input;
mod journal;
mod lines;
mod order;
mod peaks;
mod reader;
mod report;
mod request;
mod routes;
mod run;
mod sample;
mod simulate;
mod suggest;
mod suspect;
mod text;
mod timeline;
mod traffic;
mod trial;
mod tried;
pub mod words;

pub use behaviour::Behaviour;
pub use demand::{Demand, Ladder, Sufficient, written, written_limit};
pub use evidence::{Denied, Enough, Evidence, Few, Period};
pub use finding::{Finding, Judgement, Kind, horizon, percent, span_of};
pub use generator::{Chance, write_sample};
pub use hot_keys::{Hot, HotKeys};
pub use html::write_page;
pub use input::{Source, SourceError};
pub use journal::{Journal, Replayed};
pub use order::WINDOW;
pub use reader::{BadLine, Log, LogError, Progress, ReadReport};
pub use report::*;
pub use request::{LogRequest, Naming};
pub use run::{Options, each_request};
pub use sample::{Joined, Sample};
pub use simulate::{BadScenario, Group, GroupReport, Retries, Scenario, Shape, Simulated, simulate};
pub use suggest::{SuggestedRule, Suggestion};
pub use suspect::{Suspect, Suspicion};
pub use text::{Paint, summary};
pub use timeline::Counts;
pub use traffic::Concentration;
pub use trial::MAX_KEYS;
pub use tried::{Asked, ByKey, Sparing, Tried, scaled};
