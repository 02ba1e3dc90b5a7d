//! A terminal whose contents come back when we are done with it.

use std::io::{self, Stdout, Write, stdout};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, poll, read};
use crossterm::terminal::{
    self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode,
};
use crossterm::{cursor, execute, queue, style};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::Error;

/// Command of the person at the terminal.
pub(super) enum Wants {
    Nothing,
    /// The size is another one.
    Redraw,
    End,
}

/// The terminal, until it is dropped.
pub(super) struct Screen {
    out: Stdout,
    /// A signal has come.
    is_over: Arc<AtomicBool>,
}

impl Screen {
    pub(super) fn open() -> Result<Self, Error> {
        let is_over = Arc::<AtomicBool>::default();
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            // The second one ends us whatever we wait for: a terminal may take nothing any more.
            let asked = Arc::clone(&is_over);
            flag::register_conditional_shutdown(signal, 128 + signal, asked).map_err(failed)?;
            flag::register(signal, Arc::clone(&is_over)).map_err(failed)?;
        }
        enable_raw_mode().map_err(failed)?;
        // From here on it is given back whatever happens.
        let out = stdout();
        let mut screen = Self { out, is_over };
        execute!(screen.out, EnterAlternateScreen, cursor::Hide).map_err(failed)?;
        Ok(screen)
    }

    /// As much of a text as there is room for. `text`: makes it for so many columns and lines.
    pub(super) fn draw(
        &mut self,
        text: impl FnOnce((usize, usize)) -> String,
    ) -> Result<(), Error> {
        let (width, height) = terminal::size().map_err(failed)?;
        let lines = usize::from(height.saturating_sub(1));
        let text = text((width.into(), lines));
        self.draw_in(&text, (width, height)).map_err(failed)
    }

    fn draw_in(&mut self, text: &str, (width, height): (u16, u16)) -> io::Result<()> {
        let out = &mut self.out;
        for (line, y) in fitting(text, width, height).zip(0..) {
            let clear = Clear(ClearType::UntilNewLine);
            queue!(out, cursor::MoveTo(0, y), style::Print(line), clear)?;
        }
        queue!(out, Clear(ClearType::FromCursorDown))?;
        out.flush()
    }

    /// Until something is pressed, for so long.
    pub(super) fn wait(&self, time: Duration) -> Result<Wants, Error> {
        if self.is_over.load(Ordering::Relaxed) {
            return Ok(Wants::End);
        }
        if !poll(time).map_err(failed)? {
            return Ok(Wants::Nothing);
        }
        Ok(match read().map_err(failed)? {
            Event::Key(key) if ends(key) => Wants::End,
            Event::Resize(..) => Wants::Redraw,
            _ => Wants::Nothing,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = execute!(self.out, LeaveAlternateScreen, cursor::Show);
        let _ = disable_raw_mode();
    }
}

fn failed(error: io::Error) -> Error {
    Error::Write {
        file: PathBuf::from("the terminal"),
        reason: error.to_string(),
    }
}

/// q, Escape, Ctrl-C.
fn ends(key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

/// Lines and columns that fit. The last line stays free: the cursor would go beyond it.
fn fitting(text: &str, width: u16, height: u16) -> impl Iterator<Item = String> {
    let lines = text.lines().take(usize::from(height.saturating_sub(1)));
    lines.map(move |line| line.chars().take(width.into()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_left_out() {
        let text = "first line\nsecond line\nthird\n";
        let lines: Vec<String> = fitting(text, 6, 3).collect();
        assert_eq!(lines, ["first ", "second"]);
        assert_eq!(fitting(text, 80, 0).count(), 0);
    }

    #[test]
    fn keys_that_end_it() {
        let key = |code, modifiers| KeyEvent::new(code, modifiers);
        for (code, modifiers, expected) in [
            (KeyCode::Char('q'), KeyModifiers::NONE, true),
            (KeyCode::Esc, KeyModifiers::NONE, true),
            (KeyCode::Char('c'), KeyModifiers::CONTROL, true),
            (KeyCode::Char('c'), KeyModifiers::NONE, false),
            (KeyCode::Enter, KeyModifiers::NONE, false),
        ] {
            assert_eq!(ends(key(code, modifiers)), expected, "{code:?}");
        }
    }
}
