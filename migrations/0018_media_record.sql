-- media: noting published objects as assets, for the statement that ends their tasks. One element per asset, all columns of
-- the row but its instant. Returns how many were noted.
CREATE FUNCTION media_record(
    ids uuid[], tenants uuid[], users uuid[], projects uuid[], tasks uuid[], kinds text[], keys text[], types text[],
    sizes bigint[], hashes bytea[])
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    noted integer;
BEGIN
    INSERT INTO assets (id, tenant_id, user_id, project_id, task_id, kind, storage_key, content_type, size_bytes, sha256,
                        created_at)
    SELECT a.*, (SELECT aiv_now())
    FROM unnest(ids, tenants, users, projects, tasks, kinds, keys, types, sizes, hashes) AS a;
    GET DIAGNOSTICS noted = ROW_COUNT;
    RETURN noted;
END
$$;
