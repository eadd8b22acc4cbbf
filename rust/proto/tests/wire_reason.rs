// SPDX-License-Identifier: GPL-2.0

//! The reason codes against a second list, by the names of `net/smc/smc_clc.h`, and our own.

use smc_proto::reason::Reason;

const CODES: &str = "
    01010000 MEM          010100ff BUSY         02010000 TIMEOUT_CL   02020000 TIMEOUT_AL   03000000 CNFERR
    03010000 PEERNOSMC    03020000 IPSEC        03030000 NOSMCDEV     03030001 NOSMCDDEV
    03030002 NOSMCRDEV    03030003 NOISM2SUPP   03030004 NOV2EXT      03030005 NOV2DEXT
    03030006 NOSEID       03030007 NOSMCD2DEV   03030008 NOUEID       03030009 RELEASEERR
    0303000a MAXCONNERR   0303000b MAXLINKERR   03040000 MODEUNSUPP   03050000 RMBE_EC
    03060000 OPTUNSUPP    030600ff ATTACHED
    03060100 PATHOFF      03060101 PATHATTACHED 03060102 PATHELSEWHERE 03060103 PATHREMOTE
    03060104 PATHBREACH   03060105 POLICY       03060106 NEIGHBOUR    03060107 OPTIONLOST
    03060108 OPTIONRESET  03060109 AUTO         0306010a LINKFAILED   0306010b PATHENDS
    0306010c PATHREFUSED  0306010d PATHUNREACHED 0306010e PATHSOFTWARE 0306010f PATHRETURNED
    03060110 PATHLEFT     03060111 PATHWORSE    03070000 DIFFPREFIX
    03080000 GETVLANERR   03090000 ISMVLANERR
    030a0000 NOACTLINK    030b0000 NOSRVLINK    030c0000 VERSMISMAT   030d0000 MAX_DMB
    030e0000 NOROUTE      030f0000 NOINDIRECT   04000000 SYNCERR      05000000 PEERDECL
    09990000 INTERR       09990001 ERR_RTOK     09990002 ERR_RDYLNK   09990003 ERR_REGBUF
";

#[test]
fn codes_and_names() {
    let words: Vec<&str> = CODES.split_whitespace().collect();
    assert_eq!(words.len(), 2 * Reason::ALL.len());
    for (pair, reason) in words.chunks(2).zip(Reason::ALL) {
        let code = u32::from_str_radix(pair[0], 16).unwrap();
        assert_eq!((reason.code(), reason.name()), (code, pair[1]));
        assert_eq!(Reason::from_code(code), *reason);
        assert_eq!(format!("{reason}"), format!("0x{} {}", pair[0], pair[1]));
    }
}
