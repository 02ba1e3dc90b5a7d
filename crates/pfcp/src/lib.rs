//! PFCP wire format.
