-- outbox: appending, as a function, so that an owner whose rows and messages come into being together writes both in
-- one round trip. Returns how many messages were appended.
CREATE FUNCTION outbox_append(topics text[], keys uuid[], payloads text[], shards smallint[])
RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    appended bigint;
BEGIN
    INSERT INTO outbox_events (topic, key, payload, shard, created_at, visible_at)
    SELECT event.topic, event.key, event.payload, event.shard, now.at, now.at
    FROM unnest(topics, keys, payloads, shards) AS event (topic, key, payload, shard),
         (SELECT aiv_now()) AS now (at);
    GET DIAGNOSTICS appended = ROW_COUNT;
    RETURN appended;
END
$$;
