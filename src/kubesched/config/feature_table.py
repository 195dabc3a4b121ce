"""Feature gates of Kubernetes 1.36 that do not concern a scheduler.

kube-scheduler shares one gate registry with all other components, and operators pass the same
`--feature-gates` value to each. These names are therefore accepted, checked and reported as
upstream does, and have no effect. The relevant gates are fields of `features.FeatureGates`.
"""

from __future__ import annotations

# (stage, on by default, locked) and the gates of that kind, alphabetically.
GROUPS: tuple[tuple[str, bool, bool, str], ...] = (
    (
        "ALPHA",
        False,
        False,
        """
        APIServingWithRoutine AllowUnsafeMalformedObjectDeletion CBORServingAndStorage
        CPUManagerPolicyAlphaOptions CRIListStreaming CSIVolumeHealth ClientsAllowCBOR
        ClientsPreferCBOR CloudControllerManagerWatchBasedRoutesReconciliation
        CloudControllerManagerWebhook ContainerStopSignals
        ControllerManagerReleaseLeaderElectionLockOnExit CrossNamespaceVolumeDataSource
        DRAResourcePoolStatus EventedPLEG HPAScaleToZero ImageVolumeWithDigest
        InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory
        KubeletInUserNamespace LoggingAlphaOptions ManifestBasedAdmissionControlConfig MemoryQoS
        MutablePVNodeAffinity NativeHistograms PersistentVolumeClaimUnusedSinceTime
        PodAndContainerStatsFromCRI PodLevelResourceManagers PodLogsQuerySplitStreams PodsAPI
        QOSReserved ReduceDefaultCrashLoopBackOffDecay RuntimeClassInImageCriApi
        ShardedListAndWatch StorageVersionAPI TopologyManagerPolicyAlphaOptions
        UserNamespacesHostNetworkSupport WindowsCPUAndMemoryAffinity WorkloadWithJob
        """,
    ),
    (
        "BETA",
        False,
        False,
        """
        ClusterTrustBundle ClusterTrustBundleProjection ConcurrentWatchObjectDecode
        LocalStorageCapacityIsolationFSQuotaMonitoring MaxUnavailableStatefulSet
        PodCertificateRequest SELinuxMount StorageVersionMigrator
        """,
    ),
    (
        "BETA",
        True,
        False,
        """
        APIResponseCompression APIServerIdentity AllowParsingUserUIDFromCertAuth AtomicFIFO
        AuthorizePodWebsocketUpgradeCreatePermission CPUManagerPolicyBetaOptions
        CRDObservedGenerationTracking ClientsAllowCARotation ClientsAllowTLSCacheGC
        ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules ContextualLogging
        DeclarativeValidationBeta DeploymentReplicaSetTerminatingReplicas
        DetectCacheInconsistency EnvFiles ExtendWebSocketsToKubelet GracefulNodeShutdown
        GracefulNodeShutdownBasedOnPodPriority HPAConfigurableTolerance HostnameOverride
        InOrderInformersBatchProcess InPlacePodVerticalScalingInitContainers
        KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages KubeletSeparateDiskGC
        KubeletServiceAccountTokenForCredentialProviders ListFromCacheSnapshot
        LoggingBetaOptions MutablePodResourcesForSuspendedJobs
        MutableSchedulingDirectivesForSuspendedJobs OpenAPIEnums PLEGOnDemandRelist
        PodDeletionCost PodReadyToStartContainersCondition PodTopologyLabelsAdmission
        PortForwardWebsockets PreventStaticPodAPIReferences RelaxedServiceNameValidation
        ReloadKubeletClientCAFile ReloadKubeletServerCertificateFile RemoteRequestHeaderUID
        ResourceHealthStatus ResourceHealthStatusMessage RestartAllContainersOnContainerExits
        RotateKubeletServerCertificate ServiceAccountNodeAudienceRestriction
        SizeBasedListCostEstimate StaleControllerConsistencyDaemonSet
        StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet
        StaleControllerConsistencyStatefulSet StatefulSetSemanticRevisionComparison
        StorageVersionHash StrictIPCIDRValidation
        StructuredAuthenticationConfigurationEgressSelector
        StructuredAuthenticationConfigurationJWKSMetrics TokenRequestServiceAccountUIDValidation
        TopologyManagerPolicyBetaOptions TranslateStreamCloseWebsocketRequests
        UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy
        UnlockWhileProcessingFIFO WatchCacheInitializationPostStartHook WatchList
        WatchListClient WindowsGracefulNodeShutdown
        """,
    ),
    (
        "",
        True,
        False,
        """
        AllowServiceExternalIPs CustomCPUCFSQuotaPeriod InformerResourceVersion
        MutatingAdmissionPolicy
        """,
    ),
    (
        "",
        True,
        True,
        """
        APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource
        AuthorizeNodeWithSelectors AuthorizeWithSelectors BtreeWatchCache
        CPUManagerPolicyOptions CRDValidationRatcheting CSIServiceAccountTokenSecrets
        ConsistentListFromCache CustomResourceFieldSelectors DeclarativeValidation
        DisableAllocatorDualWrite ExecProbeTimeout ExternalServiceAccountTokenSigner
        ImageMaximumGCAge ImageVolume InOrderInformers JobBackoffLimitPerIndex JobManagedBy
        JobPodReplacementPolicy JobSuccessPolicy KubeletCgroupDriverFromCRI
        KubeletFineGrainedAuthz KubeletPSI KubeletPodResourcesDynamicResources
        KubeletPodResourcesGet KubeletTracing LogarithmicScaleDown MultiCIDRServiceAllocator
        MutableCSINodeAllocatableCount NFTablesProxyMode NodeLogQuery NodeSwap
        OrderedNamespaceDeletion PodLifecycleSleepAction PodLifecycleSleepActionAllowZero
        PreferSameTrafficDistribution ProcMountType RecoverVolumeExpansionFailure
        RecursiveReadOnlyMounts RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation
        ResilientWatchCacheInitialization RetryGenerateName SELinuxChangePolicy
        SELinuxMountReadWriteOncePod SeparateTaintEvictionController ServiceAccountTokenJTI
        ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation
        ServiceAccountTokenPodNodeInfo StreamingCollectionEncodingToJSON
        StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration
        SupplementalGroupsPolicy SystemdWatchdog TopologyManagerPolicyOptions
        UserNamespacesSupport WinDSR WinOverlay
        """,
    ),
    (
        "DEPRECATED",
        False,
        False,
        """
        AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests
        ChangeContainerStatusOnKubeletRestart DeclarativeValidationTakeover KMSv1
        KubeletRegistrationGetOnExistsOnly WindowsHostNetwork
        """,
    ),
    (
        "DEPRECATED",
        False,
        True,
        """
        AllowOverwriteTerminationGracePeriodSeconds GitRepoVolumeDriver SeparateCacheWatchRPC
        """,
    ),
    (
        "DEPRECATED",
        True,
        False,
        """
        DisableCPUQuotaWithExclusiveCPUs KubeletPodResourcesListUseActivePods
        ServiceCIDRStatusFieldWiping StorageNamespaceIndex
        """,
    ),
    (
        "DEPRECATED",
        True,
        True,
        """
        AggregatedDiscoveryRemoveBetaType DisableNodeKubeProxyVersion
        """,
    ),
)

# Dependencies among the gates above; a gate may only be on if these are on.
REQUIRES: dict[str, tuple[str, ...]] = {
    "AuthorizeNodeWithSelectors": ("AuthorizeWithSelectors",),
    "ClusterTrustBundleProjection": ("ClusterTrustBundle",),
    "DRAResourcePoolStatus": ("DynamicResourceAllocation",),
    "DeclarativeValidationBeta": ("DeclarativeValidation",),
    "DeclarativeValidationTakeover": ("DeclarativeValidation",),
    "DisableAllocatorDualWrite": ("MultiCIDRServiceAllocator",),
    "ExtendWebSocketsToKubelet": ("NodeDeclaredFeatures",),
    "GracefulNodeShutdownBasedOnPodPriority": ("GracefulNodeShutdown",),
    "ImageVolumeWithDigest": ("ImageVolume",),
    "InPlacePodVerticalScalingExclusiveCPUs": ("InPlacePodVerticalScaling",),
    "InPlacePodVerticalScalingExclusiveMemory": ("InPlacePodVerticalScaling",),
    "InPlacePodVerticalScalingInitContainers": (
        "InPlacePodVerticalScaling",
        "NodeDeclaredFeatures",
    ),
    "PodCertificateRequest": ("AuthorizeNodeWithSelectors",),
    "PodLevelResourceManagers": ("PodLevelResources",),
    "PodLifecycleSleepActionAllowZero": ("PodLifecycleSleepAction",),
    "ProcMountType": ("UserNamespacesSupport",),
    "ResourceHealthStatus": ("DynamicResourceAllocation",),
    "ResourceHealthStatusMessage": ("ResourceHealthStatus",),
    "RestartAllContainersOnContainerExits": ("ContainerRestartRules", "NodeDeclaredFeatures"),
    "ServiceAccountTokenNodeBinding": ("ServiceAccountTokenNodeBindingValidation",),
    "StaleControllerConsistencyDaemonSet": ("AtomicFIFO",),
    "StaleControllerConsistencyJob": ("AtomicFIFO",),
    "StaleControllerConsistencyReplicaSet": ("AtomicFIFO",),
    "StaleControllerConsistencyStatefulSet": ("AtomicFIFO",),
    "StorageVersionAPI": ("APIServerIdentity",),
    "StructuredAuthenticationConfigurationEgressSelector": (
        "StructuredAuthenticationConfiguration",
    ),
    "StructuredAuthenticationConfigurationJWKSMetrics": ("StructuredAuthenticationConfiguration",),
    "UnknownVersionInteroperabilityProxy": ("APIServerIdentity",),
    "UserNamespacesHostNetworkSupport": ("UserNamespacesSupport", "NodeDeclaredFeatures"),
    "WindowsGracefulNodeShutdown": ("GracefulNodeShutdown",),
    "WorkloadWithJob": ("GenericWorkload",),
}
