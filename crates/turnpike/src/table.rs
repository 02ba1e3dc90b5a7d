//! Columns for people.

use crate::cell::Cell;

/// Between columns.
const GAP: &str = "  ";

/// Rows under a heading; columns of numbers are aligned to the right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(heading: [&str; N]) -> Self {
        Self::of(heading.into_iter())
    }

    pub(crate) fn of<'h>(heading: impl Iterator<Item = &'h str>) -> Self {
        Self {
            rows: vec![heading.map(str::to_owned).collect()],
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [&dyn Cell; N]) {
        self.cells(cells.into_iter());
    }

    pub(crate) fn cells<'c>(&mut self, cells: impl Iterator<Item = &'c dyn Cell>) {
        self.rows.push(cells.map(Cell::cell).collect());
    }

    /// True when there is nothing but the heading.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |c: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(c));
            cells.map(|cell| cell.chars().count()).max()
        };
        (0..columns).map(|c| width(c).unwrap_or(0)).collect()
    }

    /// Leave out columns, the last ones first, that have no room in so many characters. One stays.
    pub(crate) fn within(mut self, room: usize) -> Self {
        let ends = self.widths().into_iter().scan(0, |end, width| {
            let this = *end + width;
            *end = this + GAP.len();
            Some(this)
        });
        let columns = ends.take_while(|&end| end <= room).count().max(1);
        self.rows.iter_mut().for_each(|row| row.truncate(columns));
        self
    }

    pub(crate) fn text(&self) -> String {
        let widths = self.widths();
        let columns = widths.len();
        let numeric: Vec<bool> = (0..columns).map(|c| self.is_numeric(c)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, &width), &numeric) in row.iter().zip(&widths).zip(&numeric) {
                line += &if numeric {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                };
                line += GAP;
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    fn is_numeric(&self, column: usize) -> bool {
        self.rows
            .iter()
            .skip(1)
            .filter_map(|row| row.get(column))
            .all(|cell| {
                cell.starts_with(|c: char| c.is_ascii_digit()) && !cell.contains(['.', ':', '/'])
                    || cell == "-"
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Plain;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["NAME", "COUNT", "WHAT"]);
        table.row([&"a".to_owned(), &7_u64, &"x".to_owned()]);
        table.row([&"longer".to_owned(), &1000_u64, &Plain(String::new())]);
        assert_eq!(
            table.text(),
            "NAME    COUNT  WHAT\na           7  x\nlonger  1 000\n"
        );
    }

    #[test]
    fn columns_without_room_are_left_out() {
        let table = || {
            let mut table = Table::new(["NAME", "COUNT", "WHAT"]);
            table.row([&"longer".to_owned(), &1000_u64, &Plain(String::new())]);
            table
        };
        let shown = |room| table().within(room).text();
        assert_eq!(shown(19), "NAME    COUNT  WHAT\nlonger  1 000\n");
        assert_eq!(shown(18), "NAME    COUNT\nlonger  1 000\n");
        assert_eq!(shown(12), "NAME\nlonger\n");
        assert_eq!(shown(0), "NAME\nlonger\n");
        assert_eq!(Table::of([].into_iter()).within(5).text(), "\n");
    }
}
