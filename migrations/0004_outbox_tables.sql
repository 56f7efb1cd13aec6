-- outbox: messages that must leave once their transaction has committed.
--
-- Appended in the caller's transaction, so a message exists exactly when its fact does. With the `postgres`
-- backend this table is the queue; with Kafka a relay empties it by shard.

CREATE TABLE outbox_events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic text NOT NULL,
    -- Messages of one key usually arrive in order.
    key uuid NOT NULL,
    payload text NOT NULL,
    -- hash of the key, 0 to 11: which relay sends it.
    shard smallint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- A claimed message is invisible until this instant; an unacknowledged one comes back by itself.
    visible_at timestamptz NOT NULL DEFAULT now(),
    deliveries integer NOT NULL DEFAULT 0
) WITH (fillfactor = 70);
CREATE INDEX outbox_events_due ON outbox_events (topic, visible_at, id);

-- Messages whose handler failed for good, for both backends.
CREATE TABLE dead_letters (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic text NOT NULL,
    -- Where it lay: Kafka's partition and offset, or -1 (none of Kafka's) and the outbox id.
    "partition" integer NOT NULL,
    "offset" bigint NOT NULL,
    key bytea,
    payload bytea NOT NULL,
    reason text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Set by the replay; a second replay of the same letter does nothing.
    replayed_at timestamptz,
    CONSTRAINT dead_letters_once UNIQUE (topic, "partition", "offset")
);
CREATE INDEX dead_letters_age ON dead_letters (created_at);
