-- tenancy: reserving idempotency keys, as a function, so that a batch of submits reserves its keys and locks its accounts in
-- one round trip. One element per key, all columns of the row but its instant, in key order. Waits for twins that are not
-- committed. Returns how many of the keys were free.
CREATE FUNCTION tenancy_reserve_keys(
    users uuid[], routes text[], keys text[], fingerprints bytea[], subjects text[], statuses smallint[], bodies text[])
RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    reserved bigint;
BEGIN
    INSERT INTO idempotency_keys (user_id, route, key, fingerprint, subject, response_status, response_body)
    SELECT * FROM unnest(users, routes, keys, fingerprints, subjects, statuses, bodies)
    ON CONFLICT (user_id, route, key) DO NOTHING;
    GET DIAGNOSTICS reserved = ROW_COUNT;
    RETURN reserved;
END
$$;
