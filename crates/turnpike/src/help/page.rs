//! Markdown as text for a terminal.

use std::rc::Rc;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use textwrap::{WordSeparator, WordSplitter};

/// Row of a table that goes on with the row above it begins with it.
const CONTINUES: char = '…';
const CODE_INDENT: &str = "    ";
const CELL_INDENT: &str = "    ";

/// A page, or the part of it that was asked for.
pub(crate) struct Page {
    blocks: Vec<Block>,
}

#[derive(Clone)]
enum Block {
    Heading(String),
    /// A paragraph, or an item of a list behind its marker.
    Text {
        marker: String,
        text: String,
    },
    Code(String),
    Row(Row),
}

#[derive(Clone)]
struct Row {
    labels: Rc<[String]>,
    cells: Vec<String>,
}

impl Page {
    pub(crate) fn read(markdown: &str) -> Self {
        let mut reader = Reader::default();
        for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
            reader.event(event);
        }
        reader.flush();
        Self {
            blocks: reader.blocks,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Row(row) => Some(row),
            _ => None,
        })
    }

    /// First cells of all rows; a cell may hold several names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.rows()
            .flat_map(Row::names)
            .map(str::to_owned)
            .collect()
    }

    /// Rows of the name that the words are; if there are none, rows that have all words, in any case. Each under its heading.
    /// Of a page without tables, paragraphs.
    pub(crate) fn with(&self, words: &[&str]) -> Self {
        let name = words.join(" ").to_lowercase();
        let words: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
        let is_named = |row: &Row| row.names().any(|one| one.to_lowercase() == name);
        let by_name = self.rows().any(is_named);
        let has_rows = self.rows().next().is_some();
        let has_all = |text: &str| {
            let text = text.to_lowercase();
            words.iter().all(|word| text.contains(word))
        };
        let mut blocks = Vec::new();
        let (mut heading, mut begin): (Option<&Block>, Option<&Block>) = (None, None);
        for block in &self.blocks {
            let wanted = match block {
                Block::Heading(_) => {
                    heading = Some(block);
                    false
                }
                Block::Row(row) if by_name => is_named(row),
                Block::Row(row) => has_all(&row.cells.join(" ")),
                Block::Text { text, .. } => !has_rows && has_all(text),
                Block::Code(_) => false,
            };
            let continues = matches!(block, Block::Row(row) if row.continues());
            if wanted {
                blocks.extend(heading.take().cloned());
                blocks.extend(begin.take().filter(|_| continues).cloned());
                blocks.push(block.clone());
            } else if matches!(block, Block::Row(_)) && !continues {
                begin = Some(block);
            }
        }
        Self { blocks }
    }

    /// Lines of at most so many characters, but for code and words that are longer.
    pub(crate) fn text(&self, width: usize) -> String {
        let mut text = String::new();
        let mut above: Option<&Block> = None;
        for block in &self.blocks {
            let is_tight = above.is_some_and(Block::is_item) && block.is_item();
            if above.is_some() && !is_tight {
                text.push('\n');
            }
            text += &block.text(width);
            above = Some(block);
        }
        text
    }
}

impl Block {
    /// True of the first paragraph of an item.
    fn is_item(&self) -> bool {
        matches!(self, Self::Text { marker, .. } if !marker.trim().is_empty())
    }

    fn text(&self, width: usize) -> String {
        match self {
            // As in manual pages: rows have headings, too.
            Self::Heading(text) => wrapped(&text.to_uppercase(), width, "", ""),
            Self::Text { marker, text } => {
                let indent = " ".repeat(marker.chars().count());
                wrapped(text, width, marker, &indent)
            }
            Self::Code(code) => {
                let lines = code.lines();
                lines.map(|line| format!("{CODE_INDENT}{line}\n")).collect()
            }
            Self::Row(row) => row.text(width),
        }
    }
}

impl Row {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.cells
            .first()
            .into_iter()
            .flat_map(|cell| cell.split(", "))
    }

    fn continues(&self) -> bool {
        let first = self.cells.first();
        first.is_some_and(|cell| cell.starts_with(CONTINUES))
    }

    fn text(&self, width: usize) -> String {
        let mut cells = self.cells.iter();
        let heading = cells.next().map_or("", String::as_str);
        let mut text = wrapped(heading, width, "", "  ");
        for (label, cell) in self.labels.iter().skip(1).zip(cells) {
            // Nothing to tell.
            if cell.is_empty() || cell == "-" {
                continue;
            }
            let cell = match label.as_str() {
                "" => cell.clone(),
                label => format!("{label}: {cell}"),
            };
            text += &wrapped(&cell, width, CELL_INDENT, CELL_INDENT);
        }
        text
    }
}

/// Lines of a paragraph. Words are not taken apart: they are commands and names.
pub(crate) fn wrapped(text: &str, width: usize, first: &str, next: &str) -> String {
    let options = textwrap::Options::new(width)
        .initial_indent(first)
        .subsequent_indent(next)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(text, options) + "\n"
}

/// Blocks of the events so far, and the one that is being read.
#[derive(Default)]
struct Reader {
    blocks: Vec<Block>,
    text: String,
    /// Numbers of the next items of the lists that are open; none of a list without.
    lists: Vec<Option<u64>>,
    /// Columns that each open item is indented by.
    indents: Vec<usize>,
    /// Marker of the item whose first paragraph is being read.
    marker: Option<String>,
    labels: Rc<[String]>,
    cells: Vec<String>,
}

impl Reader {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Text(text) | Event::Code(text) | Event::Html(text) | Event::InlineHtml(text) => {
                self.text += &text;
            }
            Event::SoftBreak | Event::HardBreak => self.text.push(' '),
            Event::Start(tag) => self.start(&tag),
            Event::End(tag) => self.end(tag),
            _ => {}
        }
    }

    fn start(&mut self, tag: &Tag<'_>) {
        match tag {
            // An item's text may end here, without a paragraph of its own.
            Tag::List(first) => {
                self.flush();
                self.lists.push(*first);
            }
            Tag::Item => {
                let indent = self.indent();
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "- ".to_owned(),
                };
                self.indents.push(marker.len());
                self.marker = Some(indent + &marker);
            }
            Tag::CodeBlock(_) => self.flush(),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => {
                let text = std::mem::take(&mut self.text);
                self.blocks.push(Block::Heading(text));
            }
            TagEnd::Paragraph => self.flush(),
            TagEnd::Item => {
                self.flush();
                self.indents.pop();
            }
            TagEnd::List(_) => {
                self.lists.pop();
            }
            TagEnd::CodeBlock => {
                let code = std::mem::take(&mut self.text);
                self.blocks.push(Block::Code(code));
            }
            TagEnd::TableCell => self.cells.push(std::mem::take(&mut self.text)),
            TagEnd::TableHead => self.labels = std::mem::take(&mut self.cells).into(),
            TagEnd::TableRow => {
                let (labels, cells) = (self.labels.clone(), std::mem::take(&mut self.cells));
                self.blocks.push(Block::Row(Row { labels, cells }));
            }
            _ => {}
        }
    }

    fn indent(&self) -> String {
        " ".repeat(self.indents.iter().sum())
    }

    /// A paragraph ends. Further ones of an item stand below its first.
    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        if !text.trim().is_empty() {
            let marker = self.marker.take().unwrap_or_else(|| self.indent());
            self.blocks.push(Block::Text { marker, text });
        }
    }
}
