//! Network of this host: the tables follow the kernel's links, routes and neighbours, and the slow path sends by them.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use nexthop::netlink::Netlink;
use nexthop::{KernelChange, NextHops, Request};
use report::PolicyReport;
use slowpath::{
    BufferCounts, BufferThread, BufferedSession, EndMarkerCounters, Finished, SlowPathCounters,
    SlowPathThread,
};
use tables::{LeftPackets, Tables};

use super::policies::Policies;
use super::ports::Ports;
use crate::config::Config;
use crate::kept::Packets;

/// Next hops, ports and policies as the kernel has them, and the threads of rtnetlink, the slow path and the buffers.
pub(crate) struct HostNetwork {
    next_hops: NextHops,
    policies: Policies,
    /// Something was heard of the kernel since policies were looked at.
    heard: bool,
    ports: Ports,
    netlink: Netlink,
    slow_path: SlowPathThread,
    end_markers: Arc<EndMarkerCounters>,
    /// `None`: no packet is buffered for an idle UE.
    buffers: Option<BufferThread>,
    requests: Vec<Request>,
    readdressed: bool,
    relinked: bool,
    /// The kernel has said all that it knows.
    is_known: bool,
}

impl HostNetwork {
    pub(crate) fn new(
        (next_hops, policies): (NextHops, Policies),
        netlink: Netlink,
        slow_path: SlowPathThread,
        end_markers: Arc<EndMarkerCounters>,
        buffers: Option<BufferThread>,
    ) -> Self {
        Self {
            ports: Ports::new(next_hops.ports()),
            next_hops,
            policies,
            heard: true,
            netlink,
            slow_path,
            end_markers,
            buffers,
            requests: Vec::new(),
            readdressed: false,
            relinked: false,
            is_known: false,
        }
    }

    /// Whether all that the kernel knows is known.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// The same, and the way to each gNB and gateway with it.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_known && self.next_hops.is_resolved()
    }

    /// Note a change of the kernel's; the tables learn of it by [`Self::reconcile`].
    pub(crate) fn apply(&mut self, change: KernelChange) {
        self.readdressed |= matches!(
            change,
            KernelChange::All(_) | KernelChange::Address(_) | KernelChange::AddressGone(_)
        );
        self.relinked |= matches!(
            change,
            KernelChange::All(_) | KernelChange::Link(_) | KernelChange::LinkGone(_)
        );
        self.is_known |= matches!(change, KernelChange::All(_));
        self.heard = true;
        self.next_hops.apply(change);
    }

    /// Trouble with each data interface, in their order; `None`: it is served.
    pub(crate) fn troubles(&self) -> impl Iterator<Item = Option<String>> {
        self.ports.troubles()
    }

    /// Whether addresses of this host have changed since the last call.
    pub(crate) fn is_readdressed(&mut self) -> bool {
        std::mem::take(&mut self.readdressed)
    }

    /// The addresses of this host, each with its interface.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (u32, IpAddr)> + Clone {
        let addresses = self.next_hops.kernel().addresses();
        addresses.map(|address| (address.ifindex, address.net.addr()))
    }

    /// Of an interface, as the tables have it.
    pub(crate) fn mtu(&self, interface: &str) -> Option<u32> {
        let mut ports = self.next_hops.ports().iter();
        let port = ports.find(|port| port.name == interface)?;
        let link = self.next_hops.kernel().link(port.ifindex);
        link.map(|link| link.mtu)
    }

    /// New gNBs get their next hop. Costs next to nothing when there is none.
    pub(crate) fn take_peers(&mut self, tables: &mut Tables) {
        self.next_hops.take_peers(tables);
    }

    /// Bring the tables to what the kernel says and the sessions need. Costs next to nothing when
    /// nothing changed.
    pub(crate) fn reconcile(&mut self, tables: &mut Tables) {
        let relinked = std::mem::take(&mut self.relinked);
        if relinked {
            let links = self.next_hops.kernel().links();
            tables.set_vlans(links.filter_map(|link| Some((link.ifindex, link.vlan?.parent))));
        }
        // Before packets are led there.
        self.ports
            .reconcile(relinked, self.next_hops.ports(), tables);
        self.learn(tables);
    }

    /// The same, while no packet meets the tables.
    pub(crate) fn learn(&mut self, tables: &mut Tables) {
        self.next_hops.reconcile(tables, &mut self.requests);
        if std::mem::take(&mut self.heard) {
            self.policies.look(&self.next_hops);
        }
        for request in self.requests.drain(..) {
            self.netlink.request(request);
        }
    }

    /// How forwarding policies stand.
    pub(crate) fn policies(&self, config: &Config) -> Vec<PolicyReport> {
        self.policies.report(config)
    }

    /// Counters of packets on the slow path.
    pub(crate) fn slow_path(&self) -> &SlowPathCounters {
        self.slow_path.counters()
    }

    /// Counters of packets that were cut, or whose senders were told why they are lost.
    pub(crate) fn finished(&self) -> &Finished {
        self.slow_path.finished()
    }

    /// Counters of packets that were buffered for idle UEs.
    pub(crate) fn buffers(&self) -> BufferCounts {
        let buffers = self.buffers.as_ref();
        buffers.map_or_else(BufferCounts::default, |buffers| buffers.counters().counts())
    }

    /// A receiver of the sessions with buffered packets; `None`: none can be buffered.
    pub(crate) fn list_buffers(&self) -> Option<Receiver<Vec<BufferedSession>>> {
        let (sender, receiver) = channel();
        self.buffers.as_ref()?.list(sender);
        Some(receiver)
    }

    /// Counters of End Markers.
    pub(crate) fn end_markers(&self) -> &EndMarkerCounters {
        &self.end_markers
    }
}

impl Packets for HostNetwork {
    fn judge(&self) {
        if let Some(buffers) = &self.buffers {
            buffers.judge_former();
        }
    }

    fn have_been_judged(&self) -> bool {
        let buffers = self.buffers.as_ref();
        buffers.is_none_or(BufferThread::has_judged)
    }

    fn have_been(&self) -> bool {
        self.buffers().taken > 0
    }

    fn take_left(&self, tables: &Tables, left: Vec<LeftPackets>) {
        let mut waiting = Vec::new();
        for left in left {
            self.slow_path
                .take_left(left.events.into_iter().chain(left.copies));
            waiting.extend(left.held);
            let taken = left.later.map_or(Ok(0), |later| {
                tables.leave_later(&later).map(|read| read.taken as u64)
            });
            match taken.map(|taken| left.shaped.saturating_sub(taken)) {
                Ok(0) => {}
                Ok(lost) => tracing::warn!(
                    lost,
                    "frames above their rate are lost: the process before this one had them wait"
                ),
                Err(error) => tracing::error!(%error, "frames above their rate are lost"),
            }
        }
        if let Some(buffers) = &self.buffers {
            buffers.begin(waiting);
        }
    }

    fn have_left_been_taken(&self) -> bool {
        let buffers = self.buffers.as_ref();
        !self.slow_path.has_left() && buffers.is_none_or(BufferThread::has_begun)
    }
}
