//! The terminal: redrawn in place, and restored whatever happens.

use std::io::{self, IsTerminal as _, Stdout, Write as _};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers, poll, read};
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};

use super::draw::{Pane, View, screen};
use super::line::{Line, Style};
use super::report::Report;
use crate::command::client::ServiceArgs;
use crate::command::signals;

/// The longest that a key press or an answer waits to be handled.
const BLINK: Duration = Duration::from_millis(50);

enum News {
    Report(Box<Report>),
    Trouble(String),
    /// The process was asked to stop.
    End,
}

/// Shows the service until the user quits.
pub(super) fn run(service: ServiceArgs, interval: Duration) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (sender, news) = mpsc::channel();
    let mut stop = {
        let _inside = runtime.enter();
        signals::Stop::new()?
    };
    let ending = sender.clone();
    runtime.spawn(async move {
        stop.asked().await;
        let _ = ending.send(News::End);
    });
    runtime.spawn(ask(service, interval, sender));
    runtime.spawn(leave_with_terminal());
    let terminal = Terminal::take()?;
    let shown = Watch::default().run(&news, io::stdout());
    drop(terminal);
    // Calls in progress are not waited for.
    runtime.shutdown_background();
    Ok(shown?)
}

async fn ask(service: ServiceArgs, interval: Duration, sender: Sender<News>) {
    loop {
        let answer = service.get("/v1/insight", &[]).await.and_then(|answer| Ok(serde_json::from_value(answer)?));
        let news = match answer {
            Ok(report) => News::Report(Box::new(report)),
            Err(error) => News::Trouble(format!("{error:#}")),
        };
        if sender.send(news).is_err() {
            return;
        }
        tokio::time::sleep(interval).await;
    }
}

/// Ends the process when its terminal is closed, even if SIGHUP is ignored. A closed terminal reads as end of file
/// forever, on which the event reader spins, so this cannot wait for it; and there is no terminal left to restore.
async fn leave_with_terminal() {
    while io::stdin().is_terminal() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    std::process::exit(0);
}

/// Takes over the terminal until dropped; a panic restores it first, so that its message can be read.
struct Terminal;

impl Terminal {
    fn take() -> io::Result<Terminal> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            Terminal::restore();
            before(panic);
        }));
        enable_raw_mode()?;
        let terminal = Terminal;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(terminal)
    }

    fn restore() {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        Terminal::restore();
    }
}

#[derive(Default)]
struct Watch {
    report: Option<Report>,
    trouble: Option<String>,
    view: View,
}

impl Watch {
    fn run(mut self, news: &Receiver<News>, mut out: Stdout) -> io::Result<()> {
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let mut changed = true;
        loop {
            while let Ok(one) = news.try_recv() {
                changed = true;
                match one {
                    News::Report(report) => (self.report, self.trouble) = (Some(*report), None),
                    News::Trouble(trouble) => self.trouble = Some(trouble),
                    News::End => return Ok(()),
                }
            }
            if changed {
                self.show(&mut out, colours)?;
            }
            changed = false;
            // All pending events, so that a held key does not queue up redraws.
            let mut wait = BLINK;
            while poll(wait)? {
                wait = Duration::ZERO;
                changed = true;
                if self.ends_with(&read()?) {
                    return Ok(());
                }
            }
        }
    }

    /// Handles a key; returns whether to quit.
    fn ends_with(&mut self, event: &Event) -> bool {
        let Event::Key(key) = event else { return false };
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let last = self.report.as_ref().map_or(0, |report| report.rules.len().saturating_sub(1));
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Up | KeyCode::Char('k') => self.view.rule = self.view.rule.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.view.rule = (self.view.rule + 1).min(last),
            KeyCode::Home => self.view.rule = 0,
            KeyCode::End => self.view.rule = last,
            KeyCode::Tab | KeyCode::BackTab | KeyCode::Left | KeyCode::Right => {
                self.view.pane = if self.view.pane == Pane::Keys { Pane::Violations } else { Pane::Keys };
            }
            _ => {}
        }
        false
    }

    fn show(&mut self, out: &mut Stdout, colours: bool) -> io::Result<()> {
        let (width, height) = size().map(|(width, height)| (usize::from(width), usize::from(height)))?;
        let body = height.saturating_sub(2);
        let mut lines = match &self.report {
            Some(report) => {
                self.view.rule = self.view.rule.min(report.rules.len().saturating_sub(1));
                screen(report, self.view, width, body)
            }
            None if self.trouble.is_none() => vec![Line::of(Style::Quiet, "connecting …").within(width)],
            None => Vec::new(),
        };
        lines.resize(body, Line::default());
        let last = match &self.trouble {
            Some(trouble) => Line::of(Style::Bad, &format!("numbers are out of date: {trouble}")),
            None => Line::default(),
        };
        lines.push(last.within(width));
        let other = if self.view.pane == Pane::Keys { "violations" } else { "hot keys" };
        lines.push(Line::of(Style::Quiet, &format!("q quits   ↑ ↓ select a rule   tab shows {other}")).within(width));
        queue!(out, BeginSynchronizedUpdate)?;
        for (row, line) in lines.iter().take(height).enumerate() {
            queue!(out, MoveTo(0, u16::try_from(row).unwrap_or(u16::MAX)))?;
            for (style, text) in &line.0 {
                paint(out, *style, colours)?;
                queue!(out, Print(text), SetAttribute(Attribute::Reset))?;
                if colours {
                    queue!(out, ResetColor)?;
                }
            }
            queue!(out, Clear(ClearType::UntilNewLine))?;
        }
        queue!(out, EndSynchronizedUpdate)?;
        out.flush()
    }
}

fn paint(out: &mut Stdout, style: Style, colours: bool) -> io::Result<()> {
    let (colour, attribute) = match style {
        Style::Plain => (None, None),
        Style::Strong => (None, Some(Attribute::Bold)),
        Style::Quiet => (None, Some(Attribute::Dim)),
        Style::Good => (Some(Color::Green), None),
        Style::Warn => (Some(Color::Yellow), None),
        Style::Bad => (Some(Color::Red), None),
        Style::Chosen => (Some(Color::Cyan), Some(Attribute::Bold)),
    };
    if let Some(attribute) = attribute {
        queue!(out, SetAttribute(attribute))?;
    }
    if let Some(colour) = colour.filter(|_| colours) {
        queue!(out, SetForegroundColor(colour))?;
    }
    Ok(())
}
