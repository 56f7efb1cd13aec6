//! The commands and their flags.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use domain::{Credits, KeyId, Scope, TenantId, UserId};

use crate::config::env::CONFIG_FILE;

/// The platform between a product's users and third-party AI video models.
#[derive(Debug, Parser)]
#[command(name = "aivideo", version, about)]
pub(crate) struct Cli {
    /// The configuration file; without it `aivideo.toml` in the current folder, if there is one.
    #[arg(long, value_name = "FILE", global = true, env = CONFIG_FILE)]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the platform's roles.
    Serve(ServeArgs),
    /// Bring the database up to date.
    Migrate,
    /// Run the whole platform on this machine, with private servers and nothing to set up.
    Demo(DemoArgs),
    /// Run the scripted fake provider.
    MockProvider(MockProviderArgs),
    /// Print the OpenAPI document.
    Openapi,
    /// Check the configuration and print what is in force, without secrets.
    CheckConfig,
    /// Check that no credit, task or slot has gone astray; print a row per violation.
    ///
    /// It only reads, and may run beside a working deployment. Exit code 0: every invariant holds. 1: there are
    /// violations. 2: it came to no result, because the configuration is faulty or PostgreSQL or Redis is away.
    Audit,
    /// Tenants, users, keys and grants.
    #[command(subcommand)]
    Admin(AdminCommand),
}

/// A part of the platform that a process can play.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub(crate) enum Role {
    /// HTTP, streams, the submit writer.
    Api,
    /// Feeds an outside queue from the outbox; idle when the queue is PostgreSQL.
    Relay,
    /// Consumers, dispatch, following, output, reconcilers, retirement.
    Scheduler,
}

impl Role {
    pub(crate) const ALL: [Self; 3] = [Self::Api, Self::Relay, Self::Scheduler];

    /// Its name, as `--roles` and `/readyz?role=` spell it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Relay => "relay",
            Self::Scheduler => "scheduler",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RolesArg {
    /// The roles of this process.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Role::ALL)]
    pub(crate) roles: Vec<Role>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) roles: RolesArg,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Where the API and the console listen; port 0 takes a free one. Without it `http.addr`, 127.0.0.1:8080.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http_addr: Option<SocketAddr>,
    /// Where everything is kept between starts.
    #[arg(long, value_name = "FOLDER", default_value = ".local/demo")]
    pub(crate) data_dir: PathBuf,
    /// `postgres` or `kafka://host:port[,…]`. Without it `queue.url`, postgres.
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    /// Print one line of JSON when ready, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) roles: RolesArg,
}

#[derive(Debug, Args)]
pub(crate) struct MockProviderArgs {
    /// Where it listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    pub(crate) http_addr: SocketAddr,
    /// Where its jobs are kept from an orderly stop to the next start. Without it they are forgotten.
    #[arg(long, value_name = "FILE")]
    pub(crate) state_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// Customers of the platform.
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Users of a tenant.
    #[command(subcommand)]
    User(UserCommand),
    /// API keys of a user.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Credits given by hand.
    #[command(subcommand)]
    Grant(GrantCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Make a tenant.
    Create {
        #[arg(long)]
        name: String,
        /// One of the configured tiers.
        #[arg(long)]
        tier: Option<String>,
        /// Where the tenant's days begin, such as Europe/Berlin.
        #[arg(long)]
        time_zone: Option<String>,
    },
    /// Every tenant, one line each.
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Make a user.
    Create {
        #[arg(long)]
        tenant: TenantId,
        #[arg(long)]
        name: String,
        /// The tenant's own name for the user.
        #[arg(long)]
        external_id: Option<String>,
    },
    /// Every user, one line each.
    List {
        #[arg(long)]
        tenant: Option<TenantId>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key. Its text is printed now and never again.
    Create {
        /// The user; without one, the platform's own operator, whose key may do everything.
        #[arg(long)]
        user: Option<UserId>,
        /// What the key may do, such as read,write. The default is read,write, and everything for the operator.
        #[arg(long, value_delimiter = ',')]
        scopes: Vec<Scope>,
    },
    /// A user's keys, one line each.
    List {
        #[arg(long)]
        user: UserId,
    },
    /// Withdraw a key; it stops working within five seconds.
    Revoke {
        #[arg(long)]
        key: KeyId,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantCommand {
    /// Give credits to the account that pays for a user.
    Create {
        #[arg(long)]
        user: UserId,
        #[arg(long, value_parser = credits)]
        credits: Credits,
        #[arg(long)]
        category: Option<String>,
    },
}

fn credits(text: &str) -> Result<Credits, String> {
    let amount: i64 = text.parse().map_err(|_| "is no whole number".to_owned())?;
    Credits::new(amount).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_commands_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_unknown_role_is_refused_and_the_known_ones_are_named() {
        let refused =
            Cli::try_parse_from(["aivideo", "serve", "--roles", "api,janitor"]).unwrap_err().to_string();
        assert!(refused.contains("janitor") && refused.contains("scheduler"), "{refused}");
        let cli = Cli::try_parse_from(["aivideo", "serve", "--roles", "api,relay"]).unwrap();
        let Command::Serve(args) = cli.command else { panic!("another command") };
        assert_eq!(args.roles.roles, [Role::Api, Role::Relay]);
    }

    #[test]
    fn the_file_may_be_named_after_the_command() {
        let cli = Cli::try_parse_from(["aivideo", "demo", "--config", "config/bench.toml"]).unwrap();
        assert_eq!(cli.config, Some(PathBuf::from("config/bench.toml")));
    }
}
