//! Values as cells of a table.

use std::borrow::Cow;

/// A value of a report as text, `-` when there is none.
pub(crate) trait Cell {
    fn cell(&self) -> String;
}

/// A text as it is, even an empty one.
pub(crate) struct Plain(pub(crate) String);

impl Cell for Plain {
    fn cell(&self) -> String {
        self.0.clone()
    }
}

impl Cell for str {
    fn cell(&self) -> String {
        if self.is_empty() { "-" } else { self }.to_owned()
    }
}

impl Cell for String {
    fn cell(&self) -> String {
        self.as_str().cell()
    }
}

impl Cell for Cow<'_, str> {
    fn cell(&self) -> String {
        self.as_ref().cell()
    }
}

impl<T: Cell> Cell for Option<T> {
    fn cell(&self) -> String {
        self.as_ref().map_or("-".to_owned(), Cell::cell)
    }
}

/// Joined by commas.
impl<T: Cell> Cell for Vec<T> {
    fn cell(&self) -> String {
        let cells: Vec<String> = self.iter().map(Cell::cell).collect();
        cells.join(", ").cell()
    }
}

macro_rules! grouped_cells {
    ($($number:ty),*) => {$(
        impl Cell for $number {
            fn cell(&self) -> String {
                grouped(u64::from(*self))
            }
        }
    )*};
}

grouped_cells!(u8, u16, u32, u64);

impl Cell for usize {
    fn cell(&self) -> String {
        (*self as u64).cell()
    }
}

/// As JSON writes it, `12.0`.
impl Cell for f64 {
    fn cell(&self) -> String {
        format!("{self:?}")
    }
}

impl Cell for bool {
    fn cell(&self) -> String {
        self.to_string()
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

    #[test]
    fn absent_is_not_empty() {
        assert_eq!(Some(1000_u32).cell(), "1 000");
        assert_eq!(None::<u32>.cell(), "-");
        assert_eq!(String::new().cell(), "-");
        assert_eq!(Vec::<u8>::new().cell(), "-");
        assert_eq!(vec![1_u16, 2000].cell(), "1, 2 000");
        assert_eq!((12.0.cell(), 0.125.cell()), ("12.0".into(), "0.125".into()));
        assert_eq!(Plain(String::new()).cell(), "");
    }
}
