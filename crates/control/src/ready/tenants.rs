//! Who takes part in a queue, for operators who look.

use domain::{ModelName, TenantId};

use crate::{Control, ControlError, instance::command};

/// The tenants that take part in a model's queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnOrder {
    /// Tenants with a task that may go now.
    pub active: u64,
    /// The first of them, in the order of their turn.
    pub next: Vec<TenantTurn>,
}

/// A tenant whose turn comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantTurn {
    /// The tenant.
    pub tenant: TenantId,
    /// Its share relative to others.
    pub weight: u32,
    /// Its tasks in the queue. More may wait in PostgreSQL.
    pub waiting: u64,
}

impl Control {
    /// Who takes part in each model's queue, and at most `most` of them in the order of their turn.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn turn_order(&self, models: &[ModelName], most: u16) -> Result<Vec<TurnOrder>, ControlError> {
        let counts = models.iter().map(|model| command("ZCARD").arg(self.keys().ready_active(model)));
        let counts: Vec<u64> = self.0.control.calls_as(counts.collect()).await?;
        let firsts = models.iter().map(|model| {
            let last = i64::from(most) - 1;
            command("ZRANGE").arg(self.keys().ready_active(model)).arg(0).arg(last)
        });
        let firsts: Vec<Vec<String>> = self.0.control.calls_as(firsts.collect()).await?;
        let mut orders = Vec::with_capacity(models.len());
        for ((model, active), tenants) in models.iter().zip(counts).zip(firsts) {
            let tenants: Vec<TenantId> = tenants.iter().filter_map(|tenant| tenant.parse().ok()).collect();
            let figures = tenants.iter().map(|tenant| {
                command("HMGET").arg(self.keys().ready_tenant(model, *tenant)).arg("w").arg("n")
            });
            let figures: Vec<(Option<u32>, Option<i64>)> = self.0.control.calls_as(figures.collect()).await?;
            let next = tenants
                .into_iter()
                .zip(figures)
                .map(|(tenant, (weight, waiting))| TenantTurn {
                    tenant,
                    weight: weight.unwrap_or(1),
                    waiting: waiting.and_then(|waiting| u64::try_from(waiting).ok()).unwrap_or(0),
                })
                .collect();
            orders.push(TurnOrder { active, next });
        }
        Ok(orders)
    }
}
