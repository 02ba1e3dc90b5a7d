//! This UPF at NRFs: registered while N4 is served, told of anew when the configuration changes, and no longer there when it ends. It
//! asks in the thread of REST; whatever an NRF does, N4 and packets do not hear of it.

mod profile;

use std::sync::Arc;
use std::time::Duration;

use report::NrfReport;
use sbi::Server;
use sbi::nrf::{Client, Event, Profile, Refusal, Registration, State, Verb, Vitals};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use uuid::Uuid;

use crate::command::{Asker, NoAnswer};
use crate::config::{Config, Nrf};
use crate::line_limit::LineLimit;
use crate::running::{Follower, Running, Shared};
use crate::system;

/// Between two looks at whether packets pass, of which NRFs hear at once.
const LOOK: Duration = Duration::from_secs(5);
/// Time to say goodbye in: the process ends after it, whatever the NRF says.
const GOODBYE: Duration = Duration::from_secs(2);

/// Ends the registration.
#[derive(Debug)]
pub(crate) struct Farewell {
    leave: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Farewell {
    /// `task`: has [`keep_registered`] in it.
    pub(crate) fn new(leave: oneshot::Sender<()>, task: JoinHandle<()>) -> Self {
        Self {
            leave: Some(leave),
            task,
        }
    }

    /// Begin to deregister, unless sessions are to go on (`state.on_stop`).
    pub(crate) fn say(&mut self, config: &Config) {
        if let Some(leave) = self.leave.take().filter(|_| !config.keeps_sessions()) {
            // It has ended where nothing was ever served.
            let _ = leave.send(());
        } else {
            self.task.abort();
        }
    }

    /// Another start goes on with this configuration, which may not know who knows us.
    pub(crate) async fn hand_over(&mut self, running: &Running, to: Option<Arc<Config>>) {
        let (Some(nrf), Some(to)) = (&running.nrf, to) else {
            return;
        };
        let Some(server) = &nrf.server else { return };
        let stays = to.nrf.as_ref().is_some_and(|settings| {
            let mut listed = settings.servers.iter();
            let is_listed = listed.any(|listed| listed.to_string() == *server);
            is_listed && settings.instance(&to.node.id).to_string() == nrf.instance_id
        });
        if let Some(leave) = self.leave.take().filter(|_| !stays) {
            let _ = leave.send(());
            self.finish().await;
        }
    }

    /// Wait for the end of that.
    pub(crate) async fn finish(&mut self) {
        let _ = tokio::time::timeout(GOODBYE, &mut self.task).await;
    }
}

/// Keep this UPF registered with the NRFs of the configuration in effect. It ends, deregistered, when `leave` says so.
pub(crate) async fn keep_registered(
    running: Shared,
    control: Asker,
    mut leave: oneshot::Receiver<()>,
) {
    let mut follower = running.follow();
    let mut held: Option<Held> = None;
    loop {
        let config = follower.config();
        held = Held::follow(held, &config, &running).await;
        let asked_to_leave = match &mut held {
            None => tokio::select! {
                is_another = follower.leaves(&config) => !is_another,
                left = &mut leave => left.is_ok() || park().await,
            },
            Some(held) => tokio::select! {
                () = held.serve((&mut follower, &config), &control, &running) => false,
                left = &mut leave => left.is_ok() || park().await,
            },
        };
        if asked_to_leave {
            if let Some(held) = &mut held {
                held.say_goodbye().await;
            }
            return;
        }
    }
}

/// The registration stays, and the process ends.
async fn park() -> bool {
    std::future::pending().await
}

/// Change the state that REST shows.
fn change(running: &Shared, change: impl FnOnce(&mut NrfReport)) {
    running.change(|running| change(running.nrf.get_or_insert_default()));
}

/// A registration, perhaps one that is still to be.
struct Held {
    settings: Nrf,
    client: Client,
    registration: Registration,
    profile: Profile,
    instance: Uuid,
    /// NRF that is being asked, and may have granted what it was asked for.
    asked: Option<usize>,
    /// The last refusal that was told of, by server and kind.
    told: Option<(usize, (u8, u16))>,
    vitals: Option<Vitals>,
    lines: LineLimit,
}

impl Held {
    /// Go on with another configuration.
    async fn follow(held: Option<Self>, config: &Config, running: &Shared) -> Option<Self> {
        let Some(settings) = &config.nrf else {
            if let Some(mut held) = held {
                held.say_goodbye().await;
            }
            running.change(|running| running.nrf = None);
            return None;
        };
        let profile = profile::of(config, settings);
        let instance = settings.instance(&config.node.id);
        let now = Instant::now();
        let heartbeat = Duration::from_secs(settings.heartbeat_s.into());
        let servers = &settings.servers;
        let mut registration = Registration::new(servers.len(), heartbeat, now);
        match held {
            Some(held) if held.profile == profile && held.settings == *settings => {
                return Some(held);
            }
            Some(mut held) if held.instance == instance => {
                let at = held.registration.registered_with();
                let server = at.and_then(|at| held.settings.servers.get(at));
                let known = servers.iter().position(|listed| Some(listed) == server);
                match known {
                    Some(known) => registration = registration.known_to(known),
                    // Before another one is told: it may have the same registrations.
                    None => held.say_goodbye().await,
                }
            }
            Some(mut held) => held.say_goodbye().await,
            None => {}
        }
        change(running, |shown| {
            shown.state = match registration.registered_with() {
                Some(_) => NrfReport::REGISTERED,
                None => {
                    (shown.server, shown.heartbeat_s) = (None, None);
                    NrfReport::REGISTERING
                }
            }
            .to_owned();
            shown.instance_id = instance.to_string();
        });
        Some(Self {
            settings: settings.clone(),
            client: Client::new(servers.clone(), instance, settings.oauth2),
            registration,
            profile,
            instance,
            asked: None,
            told: None,
            vitals: None,
            lines: LineLimit::default(),
        })
    }

    /// Files of certificates as they are now; those of before, where they cannot be read.
    fn read_tls(&mut self) {
        match self.settings.tls() {
            Ok(Some(tls)) => self.client.set_tls(tls),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "nrf: certificates"),
        }
    }

    /// Ask what is due, until the configuration changes.
    async fn serve(
        &mut self,
        (follower, config): (&mut Follower, &Arc<Config>),
        control: &Asker,
        running: &Shared,
    ) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = follower.leaves(config) => return,
                _ = look.tick() => {
                    let before = self.vitals;
                    self.look(control).await;
                    let state = |vitals: Option<Vitals>| vitals.map(|of| of.state);
                    if before.is_some() && state(before) != state(self.vitals) {
                        self.registration.beat(Instant::now());
                    }
                }
                // Once it is known what to say.
                () = sleep_until(self.registration.next().at), if self.vitals.is_some() => {
                    self.look(control).await;
                    self.ask(running).await;
                }
            }
        }
    }

    async fn look(&mut self, control: &Asker) {
        match control.snapshot().await {
            Ok(snapshot) => {
                let passes = snapshot.ports.iter().all(|port| port.trouble.is_none());
                self.vitals = Some(Vitals {
                    load: snapshot.load_percent,
                    state: match passes && !snapshot.stopping {
                        true => State::Registered,
                        false => State::Undiscoverable,
                    },
                });
            }
            // Too busy to say how busy.
            Err(NoAnswer::Busy) => {
                if let Some(vitals) = &mut self.vitals {
                    vitals.load = 100;
                }
            }
            Err(NoAnswer::Gone) => {}
        }
    }

    async fn ask(&mut self, running: &Shared) {
        let Some(vitals) = self.vitals else { return };
        let next = self.registration.next();
        self.read_tls();
        self.asked = Some(next.server);
        let result = match next.verb {
            Verb::Register => {
                let registered = self.client.register(next.server, &self.profile, vitals);
                registered.await
            }
            Verb::Heartbeat => self.client.heartbeat(next.server, vitals).await,
        };
        self.asked = None;
        let jitter = system::random().unwrap_or_default() as f64 / u64::MAX as f64;
        let event = self.registration.heard(Instant::now(), jitter, &result);
        let server = self.name(next.server);
        match &result {
            Ok(_) => self.told = None,
            // There is another word for it.
            Err(_) if matches!(event, Some(Event::Forgotten(_))) => {}
            Err(refusal) => self.tell_refusal((next.server, next.verb), refusal),
        }
        self.tell(event);
        let period = self.registration.period();
        let registered = self.registration.registered_with().map(|at| self.name(at));
        change(running, |shown| {
            match &result {
                Ok(_) => shown.granted += 1,
                Err(refusal) => {
                    shown.refused += 1;
                    shown.last_error = Some(format!("{server}: {refusal}"));
                }
            }
            shown.state = match registered {
                Some(_) => NrfReport::REGISTERED,
                None => NrfReport::REGISTERING,
            }
            .to_owned();
            shown.server = registered;
            shown.heartbeat_s = period.map(|period| period.as_secs());
        });
    }

    fn name(&self, server: usize) -> String {
        let server = self.client.servers().get(server);
        server.map(Server::to_string).unwrap_or_default()
    }

    fn tell(&mut self, event: Option<Event>) {
        let event = event.filter(|_| self.lines.may(Instant::now()));
        match event {
            Some(Event::Registered(server)) => {
                let period = self.registration.period().unwrap_or_default();
                tracing::info!(nrf = self.name(server), instance = %self.instance, heartbeat_s = period.as_secs(), "nrf: registered");
            }
            Some(Event::Forgotten(server)) => {
                tracing::warn!(
                    nrf = self.name(server),
                    "nrf: has forgotten this UPF, which registers again"
                );
            }
            Some(Event::Lost(server)) => {
                tracing::warn!(nrf = self.name(server), "nrf: no longer registered there");
            }
            None => {}
        }
    }

    /// Once for each kind of it, until something is granted.
    fn tell_refusal(&mut self, (server, verb): (usize, Verb), refusal: &Refusal) {
        let what = match verb {
            Verb::Register => "registration",
            Verb::Heartbeat => "heartbeat",
        };
        let news = Some((server, refusal.kind()));
        let is_news = self.told != news && self.lines.may(Instant::now());
        let nrf = self.name(server);
        self.told = news;
        match is_news {
            true => tracing::warn!(nrf, error = %refusal, "nrf: {what} refused; it is tried again"),
            false => tracing::debug!(nrf, error = %refusal, "nrf: {what} refused again"),
        }
    }

    async fn say_goodbye(&mut self) {
        let registered = self.registration.registered_with();
        let Some(server) = registered.or(self.asked) else {
            return;
        };
        self.read_tls();
        let nrf = self.name(server);
        let told = tokio::time::timeout(GOODBYE, self.client.deregister(server)).await;
        match told {
            Ok(Ok(())) => tracing::info!(nrf, "nrf: deregistered"),
            Ok(Err(error)) => tracing::warn!(nrf, %error, "nrf: not deregistered; it will notice"),
            Err(_) => tracing::warn!(nrf, "nrf: not deregistered in time; it will notice"),
        }
    }
}
