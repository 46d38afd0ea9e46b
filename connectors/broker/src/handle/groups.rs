//! The group APIs: from messages to the state machine and back.

use bytes::Bytes;
use kafka_protocol::{
    ResponseError,
    messages::{
        DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse, GroupId,
        HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
        LeaveGroupResponse, ListGroupsRequest, ListGroupsResponse, SyncGroupRequest, SyncGroupResponse,
        delete_groups_response::DeletableGroupResult,
        describe_groups_response::{DescribedGroup, DescribedGroupMember},
        join_group_response::JoinGroupResponseMember,
        leave_group_response::MemberResponse,
        list_groups_response::ListedGroup,
    },
    protocol::StrBytes,
};
use uuid::Uuid;

use super::{Context, code, once};
use crate::group::{
    Held,
    member::Member,
    message::{Join, Joined, Sync},
};

/// Kafka's `group.min.session.timeout.ms` and `group.max.session.timeout.ms`.
const SESSION_MS: std::ops::RangeInclusive<i32> = 6_000..=1_800_000;

fn text(s: &StrBytes) -> String {
    s.as_str().to_owned()
}

pub(super) async fn join(context: Context<'_>, request: JoinGroupRequest) -> JoinGroupResponse {
    let version = context.version;
    let bad = if request.group_id.is_empty() {
        Some(ResponseError::InvalidGroupId)
    } else if !SESSION_MS.contains(&request.session_timeout_ms) {
        Some(ResponseError::InvalidSessionTimeout)
    } else if request.protocols.is_empty() || request.protocol_type.is_empty() {
        Some(ResponseError::InconsistentGroupProtocol)
    } else {
        None
    };
    let joined = if let Some(error) = bad {
        Joined::error(error, &request.member_id)
    } else {
        let rebalance_ms = if version == 0 { request.session_timeout_ms } else { request.rebalance_timeout_ms };
        let instance_id = request.group_instance_id.as_ref().map(text);
        let stem = instance_id.clone().unwrap_or_else(|| context.client.id.clone());
        let join = Join {
            member_id: text(&request.member_id),
            instance_id,
            client_id: context.client.id.clone(),
            client_host: context.client.host.clone(),
            session_ms: i64::from(request.session_timeout_ms),
            rebalance_ms: i64::from(rebalance_ms),
            protocol_type: text(&request.protocol_type),
            // Copies: a small slice would hold the whole request.
            protocols: request.protocols.iter().map(|p| (text(&p.name), Bytes::copy_from_slice(&p.metadata))).collect(),
            two_steps: version >= 4,
            may_skip: version >= 9,
            new_id: format!("{stem}-{}", Uuid::from_u128(rand::random())),
        };
        let answer = context.node.groups.join(&request.group_id, join).await;
        answer.unwrap_or_else(|_| Joined::error(ResponseError::CoordinatorNotAvailable, &request.member_id))
    };
    let members = joined.members.into_iter().map(|(id, instance, metadata)| {
        let member = JoinGroupResponseMember::default().with_member_id(id.into()).with_metadata(metadata);
        if version >= 5 { member.with_group_instance_id(instance.map(Into::into)) } else { member }
    });
    // Before version 7 "none" is an empty name.
    let protocol = joined.protocol.map(StrBytes::from);
    let protocol = if version >= 7 { protocol } else { Some(protocol.unwrap_or_default()) };
    let mut response = JoinGroupResponse::default()
        .with_error_code(joined.error.map_or(0, |e| e.code()))
        .with_generation_id(joined.generation)
        .with_protocol_name(protocol)
        .with_leader(joined.leader.into())
        .with_member_id(joined.member_id.into())
        .with_members(members.collect());
    if version >= 7 {
        response.protocol_type = joined.protocol_type.map(Into::into);
    }
    if version >= 9 {
        response.skip_assignment = joined.skip_assignment;
    }
    response
}

pub(super) async fn sync(context: Context<'_>, request: SyncGroupRequest) -> SyncGroupResponse {
    let sync = Sync {
        member_id: text(&request.member_id),
        instance_id: request.group_instance_id.as_ref().map(text),
        generation: request.generation_id,
        protocol_type: request.protocol_type.as_ref().map(text),
        protocol: request.protocol_name.as_ref().map(text),
        assignments: request
            .assignments
            .iter()
            .map(|a| (text(&a.member_id), Bytes::copy_from_slice(&a.assignment)))
            .collect(),
    };
    let answer = context.node.groups.sync(&request.group_id, sync).await;
    let answer = answer.unwrap_or(Err(ResponseError::CoordinatorNotAvailable));
    let mut response = SyncGroupResponse::default().with_error_code(code(&answer));
    if context.version >= 5 {
        (response.protocol_type, response.protocol_name) = (request.protocol_type, request.protocol_name);
    }
    response.with_assignment(answer.unwrap_or_default())
}

pub(super) async fn heartbeat(context: Context<'_>, request: HeartbeatRequest) -> HeartbeatResponse {
    let instance = request.group_instance_id.as_ref().map(|i| i.as_str());
    let outcome = context.node.groups.heartbeat(&request.group_id, &request.member_id, instance, request.generation_id);
    HeartbeatResponse::default().with_error_code(code(&outcome))
}

pub(super) async fn leave(context: Context<'_>, request: LeaveGroupRequest) -> LeaveGroupResponse {
    let groups = &context.node.groups;
    if context.version < 3 {
        let outcome = groups.leave(&request.group_id, &request.member_id, None);
        return LeaveGroupResponse::default().with_error_code(code(&outcome));
    }
    let members = request.members.into_iter().map(|m| {
        let outcome = groups.leave(&request.group_id, &m.member_id, m.group_instance_id.as_ref().map(|i| i.as_str()));
        MemberResponse::default()
            .with_member_id(m.member_id)
            .with_group_instance_id(m.group_instance_id)
            .with_error_code(code(&outcome))
    });
    LeaveGroupResponse::default().with_members(members.collect())
}

pub(super) async fn list(context: Context<'_>, request: ListGroupsRequest) -> ListGroupsResponse {
    let wanted = |state: &str| {
        let filter = &request.states_filter;
        filter.is_empty() || filter.iter().any(|f| f.eq_ignore_ascii_case(state))
    };
    let groups = context.node.groups.list().into_iter().filter(|(_, _, phase)| wanted(phase.name()));
    let groups = groups.map(|(id, protocol_type, phase)| {
        let group = ListedGroup::default().with_group_id(GroupId(id.into())).with_protocol_type(protocol_type.into());
        if context.version >= 4 { group.with_group_state(StrBytes::from_static_str(phase.name())) } else { group }
    });
    ListGroupsResponse::default().with_groups(groups.collect())
}

pub(super) async fn describe(context: Context<'_>, request: DescribeGroupsRequest) -> DescribeGroupsResponse {
    let one = |id: GroupId| {
        let name = id.as_str().to_owned();
        context.node.groups.with(&name, |held| describe_one(context.version, id, held))
    };
    DescribeGroupsResponse::default().with_groups(once(request.groups, GroupId::clone).into_iter().map(one).collect())
}

fn describe_one(version: i16, id: GroupId, held: Option<&Held>) -> DescribedGroup {
    let described = DescribedGroup::default().with_group_id(id);
    let Some(group) = held.map(|h| &h.group) else {
        return described.with_group_state(StrBytes::from_static_str("Dead"));
    };
    let protocol = group.protocol.clone().unwrap_or_default();
    let member = |m: &Member| {
        let described = DescribedGroupMember::default()
            .with_member_id(m.id.clone().into())
            .with_client_id(m.client_id.clone().into())
            .with_client_host(m.client_host.clone().into())
            .with_member_metadata(m.metadata(&protocol))
            .with_member_assignment(m.assignment.clone());
        if version >= 4 { described.with_group_instance_id(m.instance_id.clone().map(Into::into)) } else { described }
    };
    described
        .with_group_state(StrBytes::from_static_str(group.phase.name()))
        .with_protocol_type(group.protocol_type.clone().unwrap_or_default().into())
        .with_members(group.members.values().map(member).collect())
        .with_protocol_data(protocol.clone().into())
}

pub(super) async fn delete(context: Context<'_>, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
    let groups = &context.node.groups;
    let mut response = DeleteGroupsResponse::default();
    for id in request.groups_names {
        let outcome = match groups.delete(&id) {
            Ok(ticket) => groups.durable(ticket).await,
            Err(e) => Err(e),
        };
        response.results.push(DeletableGroupResult::default().with_group_id(id).with_error_code(code(&outcome)));
    }
    response
}
