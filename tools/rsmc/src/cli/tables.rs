// SPDX-License-Identifier: GPL-2.0
//! The command lines of the commands that change tables.

use clap::{Args, Subcommand};

/// Show or change the enterprise ids (UEIDs) by which SMC version 2 peers recognise each other
#[derive(Args, Debug)]
pub struct UeidArgs {
    /// Action [default: show]
    #[command(subcommand)]
    pub action: Option<UeidAction>,
}

/// Actions of `rsmc ueid`.
#[derive(Debug, Subcommand)]
pub enum UeidAction {
    /// List the configured UEIDs
    Show {
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Add one: up to 32 of A-Z 0-9 . - beginning with a letter or digit, no two dots in a row
    Add {
        /// The UEID
        eid: String,
    },
    /// Remove one
    Del {
        /// The UEID
        eid: String,
    },
    /// Remove all
    Flush,
}

/// Show or change the PNET table: which interfaces and RDMA ports are on the same physical network
///
/// Only needed where a connection's interface and the RDMA device have no network device in common.
#[derive(Args, Debug)]
pub struct PnetArgs {
    /// Action [default: show]
    #[command(subcommand)]
    pub action: Option<PnetAction>,
}

/// Actions of `rsmc pnet`.
#[derive(Debug, Subcommand)]
pub enum PnetAction {
    /// List the table, or the entries of one id
    Show {
        /// PNET id
        id: Option<String>,
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Put an interface, an RDMA port, or both into a physical network
    #[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["interface", "ibdevice"]))]
    Add {
        /// PNET id: up to 16 letters and digits; the kernel stores capitals
        id: String,
        /// Network interface
        #[arg(short = 'I', long, value_name = "NAME")]
        interface: Option<String>,
        /// RDMA device (name, or PCI address for SMC-D devices)
        #[arg(short = 'D', long, value_name = "NAME")]
        ibdevice: Option<String>,
        /// Port of the RDMA device [default: 1]
        #[arg(short = 'P', long, value_name = "1|2", requires = "ibdevice", value_parser = clap::value_parser!(u8).range(1..=2))]
        ibport: Option<u8>,
    },
    /// Remove all entries of one id
    Del {
        /// PNET id
        id: String,
    },
    /// Empty the table
    Flush,
}
