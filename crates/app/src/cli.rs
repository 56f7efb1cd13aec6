//! The commands and their flags.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use domain::{Credits, KeyId, Scope, TenantId, UserId};

use crate::{commands::bench::args::BenchArgs, config::env::CONFIG_FILE};

/// Accepts, schedules, follows and bills AI video generations for the users of a product.
///
/// It stands between a product and the third-party models that make the videos. `aivideo demo` shows all of it on
/// this machine with nothing to set up; `aivideo serve` runs it on PostgreSQL and Redis of your own.
#[derive(Debug, Parser)]
#[command(name = "aivideo", version)]
pub(crate) struct Cli {
    /// The configuration file; without it `aivideo.toml` in the current folder, if there is one.
    #[arg(long, value_name = "FILE", global = true, env = CONFIG_FILE)]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the platform on PostgreSQL and Redis of your own, until SIGTERM or Ctrl-C.
    Serve(ServeArgs),
    /// Bring the database's tables up to what this version needs.
    Migrate,
    /// Run the whole platform on this machine, with private servers and nothing to set up.
    Demo(DemoArgs),
    /// Make a tenant to try the platform with: a user with credits and a key, and an operator's key.
    ///
    /// Prints the keys, and keeps them in a folder: called again, it prints the same and gives missing credits.
    Seed(SeedArgs),
    /// Run a fake video provider that can be told to misbehave, for trials and tests.
    MockProvider(MockProviderArgs),
    /// Print the HTTP API's OpenAPI document as JSON.
    Openapi,
    /// Check the configuration and print what is in force, without secrets.
    CheckConfig,
    /// Check that no credit, task or slot has gone astray; print a row per violation.
    ///
    /// It only reads, and may run beside a working deployment. Exit code 0: every invariant holds. 1: there are
    /// violations. 2: it came to no result, because the configuration is faulty or PostgreSQL or Redis is away.
    Audit,
    /// Ask a running process whether it is ready, for health checks; print its answer.
    ///
    /// Exit code 0: it is. 1: it is not, or does not answer.
    Health(HealthArgs),
    /// Measure how fast it is on this machine: submits, reads, end to end, start latency.
    ///
    /// Progress goes to standard error, figures to standard output. Exit code 0: all was measured and nothing failed.
    Bench(BenchArgs),
    /// Manage tenants, users, API keys and credits.
    #[command(subcommand)]
    Admin(AdminCommand),
}

/// A part of the platform that a process can play.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub(crate) enum Role {
    /// The HTTP API, its streams and the console.
    Api,
    /// Feeds an outside queue from the outbox; idle when the queue is PostgreSQL.
    Relay,
    /// Hands tasks to providers, follows them, fetches their videos and cleans up.
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
    /// The parts of the platform that this process plays, separated by commas.
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
    /// What carries tasks to schedulers: `postgres`, or a running Kafka as `kafka://host:port`. Without it `queue.url`,
    /// postgres.
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    /// Print one line of JSON when ready, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) roles: RolesArg,
}

#[derive(Debug, Args)]
pub(crate) struct SeedArgs {
    /// Where the keys are kept between calls.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: PathBuf,
    /// The platform's address as people reach it, for what is printed. Without it that of `http.addr`.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Print one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// What is asked, such as http://127.0.0.1:8080/healthz. Without it `/readyz` at `http.addr`.
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,
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
    /// Tenants: the products, or customers, that users belong to.
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
        /// What people call it.
        #[arg(long)]
        name: String,
        /// One of the configured tiers; without it `tenancy.default_tier`.
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
        /// The tenant that the user belongs to.
        #[arg(long)]
        tenant: TenantId,
        /// What people call the user.
        #[arg(long)]
        name: String,
        /// The tenant's own name for the user.
        #[arg(long)]
        external_id: Option<String>,
    },
    /// Every user, one line each.
    List {
        /// Only the users of this tenant.
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
        /// Whose keys.
        #[arg(long)]
        user: UserId,
    },
    /// Withdraw a key; it stops working within five seconds.
    Revoke {
        /// The key's id, as `list` prints it.
        #[arg(long)]
        key: KeyId,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantCommand {
    /// Give credits to the account that pays for a user.
    Create {
        /// The user.
        #[arg(long)]
        user: UserId,
        /// How many, a whole number.
        #[arg(long, value_parser = credits)]
        credits: Credits,
        /// A word for where the credits come from; without it `operator`.
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
    fn help_is_for_users_and_leaves_nothing_unexplained() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{} is not explained", command.get_name());
            for argument in command.get_arguments() {
                let (command, id, help) = (command.get_name(), argument.get_id(), argument.get_help());
                assert!(help.is_some(), "{id} of {command} is not explained");
            }
            command.get_subcommands().for_each(check);
        }
        let command = Cli::command();
        check(&command);
        let about = command.get_about().unwrap().to_string();
        assert_ne!(about, env!("CARGO_PKG_DESCRIPTION"), "that is for readers of the code");
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
