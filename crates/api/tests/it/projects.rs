//! Projects and their members.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Answer, Api, Someone, request};

async fn put(api: &Api, who: &Someone, project: &str, user: &str, role: &str) -> Answer {
    let path = format!("/projects/{project}/members/{user}");
    api.send(request(Method::PUT, &path, Some(&who.key), Some(&json!({ "role": role })))).await
}

async fn remove(api: &Api, who: &Someone, project: &str, user: &str) -> StatusCode {
    let path = format!("/projects/{project}/members/{user}");
    api.send(request(Method::DELETE, &path, Some(&who.key), None)).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_and_its_members() {
    let api = Api::new().await;
    let owner = api.someone("pro").await;
    let friend = api.colleague(&owner).await;
    let made = api.post("/projects", &owner.key, &json!({ "name": "Film" })).await;
    assert_eq!(made.status, StatusCode::CREATED);
    insta::assert_json_snapshot!(made.json(), { ".id" => "[project]", ".created_at" => "[time]" });
    let id = made.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(made.header("location"), Some(format!("/projects/{id}").as_str()));

    let friend_id = friend.user.to_string();
    let member = put(&api, &owner, &id, &friend_id, "viewer").await;
    assert_eq!((member.status, &member.json()["role"]), (StatusCode::OK, &json!("viewer")));
    let seen = api.get(&format!("/projects/{id}"), &friend.key).await;
    assert_eq!((seen.status, &seen.json()["role"]), (StatusCode::OK, &json!("viewer")));
    let rename = |key: String| {
        request(Method::PATCH, &format!("/projects/{id}"), Some(&key), Some(&json!({ "name": "Mine" })))
    };
    assert_eq!(api.send(rename(friend.key.clone())).await.status, StatusCode::FORBIDDEN);
    assert_eq!(api.send(rename(owner.key.clone())).await.json()["name"], "Mine");
    let members = api.get(&format!("/projects/{id}/members"), &friend.key).await.json();
    let roles: Vec<&Value> =
        members["items"].as_array().unwrap().iter().map(|member| &member["role"]).collect();
    assert_eq!(roles.len(), 2);
    assert!(roles.contains(&&json!("owner")) && roles.contains(&&json!("viewer")));

    assert_eq!(put(&api, &friend, &id, &friend_id, "owner").await.status, StatusCode::FORBIDDEN);
    assert_eq!(put(&api, &owner, &id, &friend_id, "king").await.status, StatusCode::UNPROCESSABLE_ENTITY);
    let stranger = api.someone("pro").await;
    assert_eq!(
        put(&api, &owner, &id, &stranger.user.to_string(), "viewer").await.status,
        StatusCode::NOT_FOUND
    );
    let last = put(&api, &owner, &id, &owner.user.to_string(), "viewer").await;
    assert_eq!((last.status.as_u16(), &last.json()["errors"][0]["code"]), (422, &json!("last_owner")));
    assert_eq!(remove(&api, &friend, &id, &friend_id).await, StatusCode::NO_CONTENT, "everybody may leave");
    testkit::wait_until("the membership to be over", std::time::Duration::from_secs(5), async || {
        api.get(&format!("/projects/{id}"), &friend.key).await.status == StatusCode::NOT_FOUND
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn projects_are_paged_and_names_are_checked() {
    let api = Api::new().await;
    let owner = api.someone("pro").await;
    for index in 0..3 {
        let name = json!({ "name": format!("P{index}") });
        assert_eq!(api.post("/projects", &owner.key, &name).await.status, StatusCode::CREATED);
    }
    let first = api.get("/projects?limit=2", &owner.key).await.json();
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = api.get(&format!("/projects?limit=2&cursor={cursor}"), &owner.key).await.json();
    assert_eq!((&first["items"][0]["name"], &second["items"][0]["name"]), (&json!("P0"), &json!("P2")));
    assert_eq!(second["next_cursor"], Value::Null);
    assert_eq!(api.get("/projects?cursor=%00", &owner.key).await.status, StatusCode::BAD_REQUEST);
    for name in
        [json!(""), json!(" \u{200B}"), json!("a\u{0}b"), json!("x".repeat(201)), json!(5), json!(null)]
    {
        let answer = api.post("/projects", &owner.key, &json!({ "name": name })).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{name}");
    }
}
