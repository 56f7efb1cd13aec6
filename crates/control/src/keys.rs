//! The whole keyspace. Nothing else in the project writes the name of a key.
//!
//! The part in braces is the hash tag: keys with the same tag live on the same node of a cluster, so a script may
//! touch them together. A test prefix stands before the first brace and leaves the tag as it is.
//!
//! | purpose | key | form |
//! |---|---|---|
//! | inflow buckets | `rl:{t:<tenant>}:user:<u>:<rule>`, `…:key:<k>:<rule>`, `…:tenant:<rule>`, `…:endpoint:<e>:<rule>`, `…:model:<m>:<rule>` | hash tokens, last_refill_ms |
//! | strict window | `rl:{t:<tenant>}:expensive:user:<u>:<m>`, `rl:{t:<tenant>}:key:<k>:mint` | zset entry by when |
//! | a limit in shadow mode | the limit's own key and `:shadow` | as the limit's own |
//! | replay entry | `idem:{t:<tenant>}:<user>:<hash>` | JSON |
//! | address limits | `rl:{ip:<ip>}:win`, `rl:{ip:<ip>}:auth` | hash of small buckets; zset |
//! | dispatch buckets | `rl:{a:<account>}:submit`, `rl:{a:<account>}:model:<m>` | hash tokens, last_refill_ms, capacity |
//! | not-before, breaker | `health:{a:<account>}` | hash, one field for the account and one per model; the breaker's fields |
//! | the breaker's probes | `probes:{a:<account>}` | zset of attempts, by when each is over |
//! | slots | `slot:{a:<account>}:account`, `slot:{a:<account>}:model:<m>`, `slot:{t:<tenant>}:tenant`, `slot:{t:<tenant>}:user:<u>` | zset `<task>.<attempt>` by vouched until |
//! | readiness | `slot:{tag}:ready` | string |
//! | lease | `lease:{a:<account>}:task:<id>` | JSON |
//! | ready queue | `turns:{q:<model>}:…` | see `ready.rs` |
//! | service times | `turns:{q:<model>}:service` | hash mean, deviation |
//! | snapshot, absent, progress, wait | `task:snapshot:{<id>}`, `task:notfound:{<id>}`, `task:progress:{<id>}`, `task:wait:{<id>}` | JSON; string; `version:percent`; JSON |
//! | what a model waits for | `model:wait:{<model>}` | JSON |
//! | what readers were told | `task:promise:{<id>}` | `from to` in ms since 1970 |
//! | locks | `lock:<purpose>:{<id>}` | random token |
//! | whether writes are taken | `probe` | empty |
//! | realtime | channel `task.changed.{<tenant>}`, stream `stream:task-events:{<tenant>}` | JSON |
//! | provider callbacks | channel `worker.called.{<worker>}` | empty: look into PostgreSQL |

use std::{
    fmt::Display,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use domain::{ModelName, ProviderAccountId, TaskId, TenantId, UserId, WorkerId};

use crate::{
    inflow::{InflowCheck, InflowKey},
    slots::{SlotSet, SlotTag},
};

/// Makes the names, below one prefix.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: Arc<str>,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: Arc::from(prefix) }
    }

    pub(crate) fn inflow(&self, tenant: TenantId, check: &InflowCheck) -> String {
        let (p, rule) = (&self.prefix, check.rule);
        let mut key = match &check.key {
            InflowKey::User(user) => format!("{p}rl:{{t:{tenant}}}:user:{user}:{rule}"),
            InflowKey::Key(key) => format!("{p}rl:{{t:{tenant}}}:key:{key}:{rule}"),
            InflowKey::Tenant => format!("{p}rl:{{t:{tenant}}}:tenant:{rule}"),
            InflowKey::Endpoint(name) => format!("{p}rl:{{t:{tenant}}}:endpoint:{name}:{rule}"),
            InflowKey::Model(model) => format!("{p}rl:{{t:{tenant}}}:model:{model}:{rule}"),
            InflowKey::Expensive(user, model) => {
                format!("{p}rl:{{t:{tenant}}}:expensive:user:{user}:{model}")
            }
        };
        if check.shadow {
            key.push_str(":shadow");
        }
        key
    }

    pub(crate) fn replay(&self, tenant: TenantId, user: UserId, hash: &str) -> String {
        format!("{}idem:{{t:{tenant}}}:{user}:{hash}", self.prefix)
    }

    /// Takes the place of a replay entry where there is none: scripts want each key at a fixed place.
    pub(crate) fn no_replay(&self, tenant: TenantId) -> String {
        format!("{}idem:{{t:{tenant}}}:none", self.prefix)
    }

    pub(crate) fn ip_window(&self, ip: IpAddr) -> String {
        format!("{}rl:{{ip:{}}}:win", self.prefix, network(ip))
    }

    pub(crate) fn ip_auth(&self, ip: IpAddr) -> String {
        format!("{}rl:{{ip:{}}}:auth", self.prefix, network(ip))
    }

    pub(crate) fn dispatch_account(&self, account: &ProviderAccountId) -> String {
        format!("{}rl:{{a:{account}}}:submit", self.prefix)
    }

    pub(crate) fn dispatch_model(&self, account: &ProviderAccountId, model: &ModelName) -> String {
        format!("{}rl:{{a:{account}}}:model:{model}", self.prefix)
    }

    pub(crate) fn probes(&self, account: &ProviderAccountId) -> String {
        format!("{}probes:{{a:{account}}}", self.prefix)
    }

    pub(crate) fn health(&self, account: &ProviderAccountId) -> String {
        format!("{}health:{{a:{account}}}", self.prefix)
    }

    pub(crate) fn slots(&self, set: &SlotSet) -> String {
        let p = &self.prefix;
        match set {
            SlotSet::Account(account) => format!("{p}slot:{{a:{account}}}:account"),
            SlotSet::Model(account, model) => format!("{p}slot:{{a:{account}}}:model:{model}"),
            SlotSet::Tenant(tenant) => format!("{p}slot:{{t:{tenant}}}:tenant"),
            SlotSet::User(tenant, user) => format!("{p}slot:{{t:{tenant}}}:user:{user}"),
        }
    }

    pub(crate) fn slots_ready(&self, tag: &SlotTag) -> String {
        format!("{}slot:{{{}}}:ready", self.prefix, slot_tag(tag))
    }

    /// The lock under which a tag is rebuilt. It shares the tag, so one script can check it and set the marker.
    pub(crate) fn slots_rebuild(&self, tag: &SlotTag) -> String {
        format!("{}lock:slots:{{{}}}", self.prefix, slot_tag(tag))
    }

    pub(crate) fn lease(&self, account: &ProviderAccountId, task: TaskId) -> String {
        format!("{}lease:{{a:{account}}}:task:{task}", self.prefix)
    }

    /// What every key of one model's ready queue begins with. It changes with the meaning of what lies there (it was
    /// `ready:`): so releases that run beside each other have a queue each, and PostgreSQL decides who starts a task.
    pub(crate) fn ready(&self, model: &ModelName) -> String {
        format!("{}turns:{{q:{model}}}:", self.prefix)
    }

    /// States that a queue is complete.
    pub(crate) fn ready_marker(&self, model: &ModelName) -> String {
        format!("{}ready", self.ready(model))
    }

    /// The tenants that take part in a queue, by the order of their turn.
    pub(crate) fn ready_active(&self, model: &ModelName) -> String {
        format!("{}active", self.ready(model))
    }

    /// A tenant's figures in a queue.
    pub(crate) fn ready_tenant(&self, model: &ModelName, tenant: TenantId) -> String {
        format!("{}t:{tenant}", self.ready(model))
    }

    /// Counts what waits in a queue.
    pub(crate) fn ready_depth(&self, model: &ModelName) -> String {
        format!("{}n", self.ready(model))
    }

    /// How long a model's jobs take.
    pub(crate) fn service(&self, model: &ModelName) -> String {
        format!("{}service", self.ready(model))
    }

    pub(crate) fn snapshot(&self, task: TaskId) -> String {
        format!("{}task:snapshot:{{{task}}}", self.prefix)
    }

    pub(crate) fn absent(&self, task: TaskId) -> String {
        format!("{}task:notfound:{{{task}}}", self.prefix)
    }

    pub(crate) fn progress(&self, task: TaskId) -> String {
        format!("{}task:progress:{{{task}}}", self.prefix)
    }

    pub(crate) fn wait(&self, task: TaskId) -> String {
        format!("{}task:wait:{{{task}}}", self.prefix)
    }

    /// What a probe of a server writes.
    pub(crate) fn probe(&self) -> String {
        format!("{}probe", self.prefix)
    }

    /// What waits of a model's tasks are due to.
    pub(crate) fn model_wait(&self, model: &ModelName) -> String {
        format!("{}model:wait:{{{model}}}", self.prefix)
    }

    pub(crate) fn promise(&self, task: TaskId) -> String {
        format!("{}task:promise:{{{task}}}", self.prefix)
    }

    pub(crate) fn lock(&self, purpose: &str, id: impl Display) -> String {
        format!("{}lock:{purpose}:{{{id}}}", self.prefix)
    }

    pub(crate) fn channel(&self, tenant: TenantId) -> String {
        format!("{}task.changed.{{{tenant}}}", self.prefix)
    }

    pub(crate) fn worker_channel(&self, worker: &WorkerId) -> String {
        format!("{}worker.called.{{{worker}}}", self.prefix)
    }

    pub(crate) fn stream(&self, tenant: TenantId) -> String {
        format!("{}stream:task-events:{{{tenant}}}", self.prefix)
    }
}

fn slot_tag(tag: &SlotTag) -> String {
    match tag {
        SlotTag::Account(account) => format!("a:{account}"),
        SlotTag::Tenant(tenant) => format!("t:{tenant}"),
    }
}

/// The network that shares one limit: an IPv4 address, or the /64 that one IPv6 subscriber has at least.
#[must_use]
pub fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => {
                let [a, b, c, d, ..] = v6.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use domain::limits::{Bucket, LimitScope};

    use super::*;
    use crate::InflowLimit;

    fn check(key: InflowKey) -> InflowCheck {
        let limit = InflowLimit::Bucket(Bucket::per_second(1, 1));
        InflowCheck { scope: LimitScope::User, key, rule: "submit", limit, cost: 1, shadow: false }
    }

    /// The part that decides the node, as Redis Cluster finds it.
    fn tag(key: &str) -> &str {
        let open = key.find('{').unwrap();
        let close = key[open..].find('}').unwrap() + open;
        &key[open + 1..close]
    }

    /// C34, for a cluster.
    #[test]
    fn keys_that_a_script_touches_together_share_a_tag_with_and_without_prefix() {
        let (tenant, user) = (TenantId::generate(), UserId::generate());
        let (account, model): (ProviderAccountId, ModelName) =
            ("mock".parse().unwrap(), "m/1".parse().unwrap());
        let task = TaskId::generate();
        for keys in [Keys::new(""), Keys::new("t:1:")] {
            let of_tenant = [
                keys.inflow(tenant, &check(InflowKey::User(user))),
                keys.inflow(tenant, &check(InflowKey::Key("abcdefghijkl".parse().unwrap()))),
                keys.inflow(tenant, &check(InflowKey::Tenant)),
                keys.inflow(tenant, &check(InflowKey::Endpoint("generations"))),
                keys.inflow(tenant, &check(InflowKey::Model(model.clone()))),
                keys.inflow(tenant, &check(InflowKey::Expensive(user, model.clone()))),
                keys.replay(tenant, user, "h"),
                keys.no_replay(tenant),
                keys.slots(&SlotSet::Tenant(tenant)),
                keys.slots(&SlotSet::User(tenant, user)),
                keys.slots_ready(&SlotTag::Tenant(tenant)),
                keys.slots_rebuild(&SlotTag::Tenant(tenant)),
            ];
            for key in &of_tenant {
                assert_eq!(tag(key), format!("t:{tenant}"), "{key}");
            }
            let of_account = [
                keys.slots(&SlotSet::Account(account.clone())),
                keys.slots(&SlotSet::Model(account.clone(), model.clone())),
                keys.slots_ready(&SlotTag::Account(account.clone())),
                keys.slots_rebuild(&SlotTag::Account(account.clone())),
                keys.dispatch_account(&account),
                keys.dispatch_model(&account, &model),
                keys.health(&account),
                keys.probes(&account),
                keys.lease(&account, task),
            ];
            for key in &of_account {
                assert_eq!(tag(key), "a:mock", "{key}");
            }
            assert_eq!(tag(&keys.snapshot(task)), tag(&keys.absent(task)));
            assert_eq!(tag(&keys.ready(&model)), "q:m/1");
        }
    }

    #[test]
    fn the_names_are_those_of_the_table() {
        let keys = Keys::new("");
        let (tenant, user) = (TenantId::generate(), UserId::generate());
        assert_eq!(keys.slots(&SlotSet::User(tenant, user)), format!("slot:{{t:{tenant}}}:user:{user}"));
        let strict = check(InflowKey::Expensive(user, "mock-pro".parse().unwrap()));
        let strict_key = format!("rl:{{t:{tenant}}}:expensive:user:{user}:mock-pro");
        assert_eq!(keys.inflow(tenant, &strict), strict_key);
        let shadow = InflowCheck { shadow: true, ..strict };
        assert_eq!(keys.inflow(tenant, &shadow), format!("{strict_key}:shadow"));
        assert_eq!(keys.channel(tenant), format!("task.changed.{{{tenant}}}"));
        let ip = "2001:db8:1:2:3:4:5:6".parse().unwrap();
        assert_eq!(keys.ip_window(ip), "rl:{ip:2001:db8:1:2::}:win");
    }

    #[test]
    fn an_ipv6_subscriber_and_a_mapped_address_have_one_name() {
        let same = |a: &str, b: &str| network(a.parse().unwrap()) == network(b.parse().unwrap());
        assert!(same("2001:db8::1", "2001:db8::ffff:1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1"));
    }
}
