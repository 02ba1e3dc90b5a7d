//! Columns for people.

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

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    pub(crate) fn cells(&mut self, cells: impl Iterator<Item = String>) {
        self.rows.push(cells.collect());
    }

    /// True when there is nothing but the heading.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    pub(crate) fn text(&self) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |c: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(c))
                .map(|cell| cell.chars().count())
                .max()
        };
        let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
        let numeric: Vec<bool> = (0..columns).map(|c| self.is_numeric(c)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, &width), &numeric) in row.iter().zip(&widths).zip(&numeric) {
                if numeric {
                    line += &format!("{cell:>width$}  ");
                } else {
                    line += &format!("{cell:<width$}  ");
                }
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

/// 1234567 as `1 234 567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["NAME", "COUNT", "WHAT"]);
        table.row(["a".into(), "7".into(), "x".into()]);
        table.row(["longer".into(), "1 000".into(), String::new()]);
        assert_eq!(
            table.text(),
            "NAME    COUNT  WHAT\na           7  x\nlonger  1 000\n"
        );
    }

    #[test]
    fn groups_of_three() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1000, "1 000"),
            (1_234_567, "1 234 567"),
        ];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
    }
}
