//! From rules to what packets meet.

mod both;
pub(crate) mod compiler;
#[cfg(test)]
pub(crate) mod tests;
