//! What SMFs and GTP-U peers see of a node.

mod associations;
mod bundles;
mod fuzz;
mod gtpu;
mod load;
mod pfds;
mod reconfigured;
mod release;
mod sets;
mod shares;
mod strangers;
mod succession;
mod symptoms;
