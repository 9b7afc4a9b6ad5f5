CREATE TABLE objects (
    id BIGINT PRIMARY KEY,
    -- The object as JSON.
    body TEXT NOT NULL,
    -- 1 once the job had caught up with its inputs.
    created BIGINT NOT NULL,
    -- 1 when nobody waits for the creation: it goes on after a restart.
    background BIGINT NOT NULL
);

CREATE TABLE schemas (
    name TEXT PRIMARY KEY
);

CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);

INSERT INTO counters (name, value) VALUES ('next_id', 20000);
