//! The one door to the data path.
