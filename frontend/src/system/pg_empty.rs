//! Relations of `pg_catalog` about what Weir does not have: there, and empty, so that clients can ask.

use super::Relation;
use super::relation::Type::{Bool, Int2, Int2Array, Int4, Int8, Text, TextArray, TimestampTz};
use super::relation::{Type, none};

const fn empty(name: &'static str, columns: &'static [(&'static str, Type)]) -> Relation {
    Relation { name, columns, rows: none }
}

pub(super) static RELATIONS: &[Relation] = &[
    empty("pg_description", &[("objoid", Int4), ("classoid", Int4), ("objsubid", Int4), ("description", Text)]),
    empty("pg_shdescription", &[("objoid", Int4), ("classoid", Int4), ("description", Text)]),
    empty("pg_enum", &[("oid", Int4), ("enumtypid", Int4), ("enumsortorder", Int4), ("enumlabel", Text)]),
    empty(
        "pg_depend",
        &[
            ("classid", Int4),
            ("objid", Int4),
            ("objsubid", Int4),
            ("refclassid", Int4),
            ("refobjid", Int4),
            ("refobjsubid", Int4),
            ("deptype", Text),
        ],
    ),
    empty(
        "pg_proc",
        &[
            ("oid", Int4),
            ("proname", Text),
            ("pronamespace", Int4),
            ("proowner", Int4),
            ("prolang", Int4),
            ("prokind", Text),
            ("prorettype", Int4),
            ("proargtypes", Text),
            ("proargnames", TextArray),
            ("prosrc", Text),
            ("proretset", Bool),
            ("provolatile", Text),
            ("pronargs", Int2),
        ],
    ),
    empty(
        "pg_collation",
        &[("oid", Int4), ("collname", Text), ("collnamespace", Int4), ("collowner", Int4), ("collprovider", Text)],
    ),
    empty(
        "pg_extension",
        &[("oid", Int4), ("extname", Text), ("extowner", Int4), ("extnamespace", Int4), ("extversion", Text)],
    ),
    empty("pg_inherits", &[("inhrelid", Int4), ("inhparent", Int4), ("inhseqno", Int4), ("inhdetachpending", Bool)]),
    empty("pg_tablespace", &[("oid", Int4), ("spcname", Text), ("spcowner", Int4), ("spcacl", TextArray)]),
    empty("pg_range", &[("rngtypid", Int4), ("rngsubtype", Int4), ("rngmultitypid", Int4)]),
    empty(
        "pg_rewrite",
        &[("oid", Int4), ("rulename", Text), ("ev_class", Int4), ("ev_type", Text), ("is_instead", Bool)],
    ),
    empty(
        "pg_trigger",
        &[
            ("oid", Int4),
            ("tgrelid", Int4),
            ("tgparentid", Int4),
            ("tgname", Text),
            ("tgenabled", Text),
            ("tgisinternal", Bool),
            ("tgconstraint", Int4),
        ],
    ),
    empty(
        "pg_policy",
        &[
            ("oid", Int4),
            ("polname", Text),
            ("polrelid", Int4),
            ("polcmd", Text),
            ("polpermissive", Bool),
            ("polroles", TextArray),
            ("polqual", Text),
            ("polwithcheck", Text),
        ],
    ),
    empty(
        "pg_statistic_ext",
        &[
            ("oid", Int4),
            ("stxrelid", Int4),
            ("stxname", Text),
            ("stxnamespace", Int4),
            ("stxstattarget", Int4),
            ("stxkeys", TextArray),
            ("stxkind", TextArray),
        ],
    ),
    empty("pg_publication", &[("oid", Int4), ("pubname", Text), ("puballtables", Bool), ("pubviaroot", Bool)]),
    empty(
        "pg_publication_rel",
        &[("oid", Int4), ("prpubid", Int4), ("prrelid", Int4), ("prqual", Text), ("prattrs", Int2Array)],
    ),
    empty("pg_publication_namespace", &[("oid", Int4), ("pnpubid", Int4), ("pnnspid", Int4)]),
    empty("pg_foreign_table", &[("ftrelid", Int4), ("ftserver", Int4), ("ftoptions", TextArray)]),
    empty("pg_foreign_server", &[("oid", Int4), ("srvname", Text), ("srvoptions", TextArray)]),
    empty("pg_partitioned_table", &[("partrelid", Int4), ("partstrat", Text), ("partnatts", Int2)]),
    empty(
        "pg_sequences",
        &[("schemaname", Text), ("sequencename", Text), ("sequenceowner", Text), ("last_value", Int8)],
    ),
    empty("pg_locks", &[("locktype", Text), ("relation", Int4), ("pid", Int4), ("mode", Text), ("granted", Bool)]),
    empty("pg_auth_members", &[("roleid", Int4), ("member", Int4), ("grantor", Int4), ("admin_option", Bool)]),
    empty("pg_db_role_setting", &[("setdatabase", Int4), ("setrole", Int4), ("setconfig", TextArray)]),
    empty(
        "pg_operator",
        &[("oid", Int4), ("oprname", Text), ("oprnamespace", Int4), ("oprleft", Int4), ("oprright", Int4)],
    ),
    empty("pg_opclass", &[("oid", Int4), ("opcname", Text), ("opcmethod", Int4), ("opcdefault", Bool)]),
    empty("pg_cast", &[("oid", Int4), ("castsource", Int4), ("casttarget", Int4), ("castcontext", Text)]),
    empty("pg_language", &[("oid", Int4), ("lanname", Text)]),
    empty("pg_event_trigger", &[("oid", Int4), ("evtname", Text)]),
    empty(
        "pg_prepared_statements",
        &[("name", Text), ("statement", Text), ("prepare_time", TimestampTz), ("from_sql", Bool)],
    ),
    empty("pg_cursors", &[("name", Text), ("statement", Text), ("is_holdable", Bool), ("creation_time", TimestampTz)]),
    empty("pg_stat_user_tables", &[("relid", Int4), ("schemaname", Text), ("relname", Text), ("n_live_tup", Int8)]),
];
