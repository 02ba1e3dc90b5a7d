//! From rules to what packets meet.

pub(crate) mod compiler;
#[cfg(test)]
pub(crate) mod tests;
