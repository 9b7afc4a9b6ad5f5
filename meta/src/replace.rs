//! An object in the place of another: CREATE OR REPLACE MATERIALIZED VIEW.
//!
//! The new object is created beside the old one, under a name of its own. When it is created, one transaction of the catalog gives
//! it the name, and removes the old one.

use std::sync::Arc;

use weir_common::JobId;
use weir_common::catalog::ObjectKind;

use crate::error::{MetaError, Result};
use crate::job::{JobState, Phase};
use crate::meta::Meta;

impl Meta {
    /// Puts an object that is created in the place of the one that it replaces, which is dropped.
    pub(crate) async fn take_place(&self, id: JobId) -> Result<()> {
        let _ddl = self.ddl.lock().await;
        let catalog = self.catalog();
        let new = catalog.get(id).ok_or(MetaError::NoSuchObject(id))?;
        let old = new.replaces.ok_or(MetaError::NoSuchObject(id))?;
        let old = catalog.get(old).ok_or(MetaError::NoSuchObject(old))?;
        let dependants = catalog.dependants(old.id);
        if dependants.iter().any(|o| o.kind != ObjectKind::View) {
            return Err(MetaError::HasDependants { name: old.name.clone() });
        }
        let mut changed = new.as_ref().clone();
        (changed.schema, changed.name, changed.replaces) = (old.schema.clone(), old.name.clone(), None);
        let mut changed = vec![Arc::new(changed)];
        for view in dependants {
            let mut view = view.as_ref().clone();
            view.depends_on.iter_mut().filter(|on| **on == old.id).for_each(|on| *on = id);
            changed.push(Arc::new(view));
        }
        self.store.update(&changed, &[old.id]).await?;
        self.shared.update_catalog(|c| {
            c.remove(old.id);
            c.change(&changed);
        });
        let (replaced, job) = {
            let mut jobs = self.shared.jobs();
            (jobs.remove(&old.id), jobs.get(&id).cloned())
        };
        if let (Some(job), Some(object)) = (job, changed.into_iter().next()) {
            job.alter(object);
        }
        match replaced {
            Some(job) => self.end(&job).await,
            None => Ok(()),
        }
    }

    /// The same as soon as it is created; what can't take its place is dropped.
    pub(crate) fn take_place_later(self: &Arc<Self>, id: JobId) {
        let meta = Arc::downgrade(self);
        let job = self.shared.jobs().get(&id).cloned();
        tokio::spawn(async move {
            let Some(mut state) = job.map(|job| job.state.clone()) else { return };
            let ended = |s: &JobState| s.created || s.phase == Phase::Dropped;
            if !state.wait_for(ended).await.is_ok_and(|s| s.created) {
                return;
            }
            let Some(meta) = meta.upgrade() else { return };
            if let Err(error) = meta.take_place(id).await {
                tracing::warn!(%id, %error, "replace a materialized view");
                let _ = meta.drop_objects(&[id]).await;
            }
        });
    }
}
